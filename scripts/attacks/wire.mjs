// Network functions of hostile clients: requests on fresh connections, and raw bytes.
import { request } from "node:http";
import { connect } from "node:net";

// One request on a fresh connection: {status, text, ms, headers}. Never throws: status 0 is a
// connection that failed or took longer than limitMs, as `error` tells.
export function ask(url, path, { method, body, headers, limitMs = 60_000, signal } = {}) {
  return new Promise((resolve) => {
    const start = performance.now();
    const bytes = body === undefined ? undefined : Buffer.from(typeof body === "string" ? body : JSON.stringify(body));
    const done = (r) => {
      clearTimeout(limit);
      resolve({ status: 0, text: "", headers: {}, ms: performance.now() - start, ...r });
    };
    const req = request(
      url + path,
      {
        agent: false,
        method: method ?? (bytes ? "POST" : "GET"),
        signal,
        headers: { ...(bytes && { "Content-Type": "application/json", "Content-Length": bytes.length }), ...headers },
      },
      (response) => {
        const parts = [];
        response.on("data", (d) => parts.push(d));
        response.on("end", () =>
          done({ status: response.statusCode, headers: response.headers, text: Buffer.concat(parts).toString() }),
        );
        response.on("error", (e) => done({ error: e.code ?? e.message }));
      },
    );
    const limit = setTimeout(() => req.destroy(new Error("no answer in time")), limitMs);
    req.on("error", (e) => done({ error: e.code ?? e.message }));
    req.end(bytes);
  });
}

// The head and body of a POST of JSON, as bytes.
export function postBytes(path, body, headers = "") {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  return `POST ${path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(text)}\r\n${headers}\r\n${text}`;
}

// Connections that are closed together.
export class Sockets {
  constructor(url) {
    ({ hostname: this.host, port: this.port } = new URL(url));
    this.all = new Set();
  }

  // A connected socket, or null when the connection was refused. Received bytes are gathered in
  // socket.text unless the caller pauses it; socket.over: the other side has closed it.
  open(options = {}) {
    return new Promise((resolve) => {
      const socket = connect({ host: this.host, port: Number(this.port), ...options });
      socket.text = "";
      socket.over = false;
      this.all.add(socket);
      socket.on("data", (d) => (socket.text += d.toString("latin1")));
      socket.on("end", () => (socket.over = true));
      socket.on("error", () => resolve(null));
      socket.on("close", () => {
        socket.over = true;
        this.all.delete(socket);
        resolve(null);
      });
      socket.on("connect", () => resolve(socket));
    });
  }

  // Sends bytes; returns the bytes received until the other side closes the connection or ms have passed.
  async exchange(bytes, ms) {
    const socket = await this.open();
    if (!socket) return { text: "", closed: true };
    socket.write(Buffer.from(bytes, "latin1"));
    const end = performance.now() + ms;
    while (!socket.over && performance.now() < end) await new Promise((done) => setTimeout(done, 10));
    const closed = socket.over;
    socket.destroy();
    return { text: socket.text, closed };
  }

  close() {
    for (const socket of this.all) socket.destroy();
  }
}
