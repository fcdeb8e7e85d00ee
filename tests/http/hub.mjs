// A server on 127.0.0.1 that behaves like the Hugging Face Hub: listing, redirect to a second server ("the
// CDN"), tokens, Range, and failures.
import { createHash } from "node:crypto";
import { mkdtempSync } from "node:fs";
import http from "node:http";
import { join } from "node:path";

export const sha256 = (bytes) => createHash("sha256").update(bytes).digest("hex");
export const gitHash = (bytes) => createHash("sha1").update(`blob ${bytes.length}\0`).update(bytes).digest("hex");

const listen = (handler) =>
  new Promise((resolve) => {
    const server = http.createServer(handler);
    server.listen(0, "127.0.0.1", () => resolve(server));
  });

export const rangeFrom = (request) => Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? "")?.[1] ?? 0);

// Answers like a CDN: the whole file, or a range to its end.
export function sendFile(request, response, bytes, { upTo = bytes.length } = {}) {
  const from = rangeFrom(request);
  const head = { "Accept-Ranges": "bytes", "Content-Length": bytes.length - from };
  if (from >= bytes.length) return response.writeHead(416, { "Content-Range": `bytes */${bytes.length}` }).end();
  if (from) head["Content-Range"] = `bytes ${from}-${bytes.length - 1}/${bytes.length}`;
  response.writeHead(from ? 206 : 200, head);
  if (upTo >= bytes.length) return response.end(bytes.subarray(from));
  // Fewer bytes than promised, then the connection breaks.
  response.write(bytes.subarray(from, upTo), () => response.destroy());
}

// folder: where its client keeps files. files: name -> bytes. What tests change: files, listed (extra or other rows), gate, onApi, onFile.
export async function startHub(folder, files, { repo = "org/tiny", commit = "c".repeat(40) } = {}) {
  const hub = { files: { ...files }, listed: {}, repo, commit, requests: [], gate: null, onApi: null, onFile: null };
  const isLarge = (name) => /\.(gguf|safetensors)$/.test(name);
  const row = (name) => {
    const bytes = hub.files[name];
    const lfs = { sha256: sha256(bytes), size: bytes.length, pointerSize: 134 };
    return {
      rfilename: name,
      size: bytes.length,
      blobId: isLarge(name) ? "b".repeat(40) : gitHash(bytes),
      ...(isLarge(name) ? { lfs } : {}),
      ...hub.listed[name],
    };
  };
  const note = (where, request) =>
    hub.requests.push({ where, url: request.url, range: request.headers.range, token: request.headers.authorization });
  const refuse = (response, status, code) => response.writeHead(status, { "X-Error-Code": code }).end("no");
  hub.api = await listen((request, response) => {
    note("api", request);
    if (hub.onApi?.(request, response)) return;
    const url = decodeURIComponent(request.url);
    if (hub.gate && request.headers.authorization !== `Bearer ${hub.gate}`)
      return refuse(response, 401, "RepoNotFound");
    if (url.startsWith(`/api/models/${hub.repo}/revision/`)) {
      const revision = url.slice(`/api/models/${hub.repo}/revision/`.length).replace(/\?.*/, "");
      if (!["main", "refs/pr/1", hub.commit].includes(revision)) return refuse(response, 404, "RevisionNotFound");
      const siblings = [...Object.keys(hub.files).map(row), ...(hub.rows ?? [])];
      return response.end(JSON.stringify({ id: hub.repo, sha: hub.commit, siblings }));
    }
    const start = `/${hub.repo}/resolve/${hub.commit}/`;
    const name = url.startsWith(start) ? url.slice(start.length) : null;
    if (name === null) return refuse(response, 404, "RepoNotFound");
    if (!(name in hub.files)) return refuse(response, 404, "EntryNotFound");
    const bytes = hub.files[name];
    if (!isLarge(name)) return sendFile(request, response.setHeader("ETag", `"${gitHash(bytes)}"`), bytes);
    response.writeHead(302, {
      Location: `http://127.0.0.1:${hub.cdn.address().port}/${encodeURIComponent(name)}?signature=s3cret`,
      "X-Repo-Commit": hub.commit,
      "X-Linked-Size": bytes.length,
      "X-Linked-Etag": `"${hub.etag ?? sha256(bytes)}"`,
    });
    response.end("Found. Redirecting");
  });
  hub.cdn = await listen((request, response) => {
    note("cdn", request);
    const name = decodeURIComponent(request.url.slice(1).replace(/\?.*/, ""));
    if (!hub.onFile?.(request, response, hub.files[name], name)) sendFile(request, response, hub.files[name]);
  });
  hub.url = `http://127.0.0.1:${hub.api.address().port}`;
  hub.home = mkdtempSync(join(folder, "home-"));
  hub.path = (...names) => join(hub.home, "models", hub.repo, ...names);
  hub.ranges = () => hub.requests.filter((r) => r.where === "cdn").map((r) => r.range ?? "all");
  hub.stop = () => [hub.api, hub.cdn].forEach((s) => (s.closeAllConnections(), s.close()));
  return hub;
}
