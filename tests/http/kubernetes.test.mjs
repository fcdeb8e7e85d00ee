// The Kubernetes base of scripts/replicas: built by kubectl where it is, held to the published schemas of each kind, and
// run as far as that goes without a cluster: the daemon starts with the container's arguments and configuration and
// answers its probes. What a cluster makes of it stays unproven here.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import Ajv2020 from "ajv/dist/2020.js";
import { validate as podMonitor } from "./node_modules/@kubernetes-models/prometheus-operator/_schemas/ComGithubPrometheusOperatorPrometheusOperatorPkgApisMonitoringV1PodMonitor.js";
import { validate as configMap } from "kubernetes-models/_schemas/IoK8sApiCoreV1ConfigMap";
import { validate as deployment } from "kubernetes-models/_schemas/IoK8sApiAppsV1Deployment";
import { validate as namespace } from "kubernetes-models/_schemas/IoK8sApiCoreV1Namespace";
import { validate as networkPolicy } from "kubernetes-models/_schemas/IoK8sApiNetworkingV1NetworkPolicy";
import { validate as claim } from "kubernetes-models/_schemas/IoK8sApiCoreV1PersistentVolumeClaim";
import { validate as budget } from "kubernetes-models/_schemas/IoK8sApiPolicyV1PodDisruptionBudget";
import { validate as service } from "kubernetes-models/_schemas/IoK8sApiCoreV1Service";
import { parse, parseAllDocuments } from "yaml";
import { binary, metrics, modelFile, startServer, until } from "./server.mjs";

const base = "scripts/replicas/kubernetes";
const folder = mkdtempSync(join(tmpdir(), "inferd-kubernetes-"));
after(() => rmSync(folder, { recursive: true, force: true }));
const read = (file) => parse(readFileSync(join(base, file), "utf8"));
const kustomization = read("kustomization.yaml");
const resources = kustomization.resources.map(read);
const of = (kind) => resources.find((r) => r.kind === kind);

// By the definition of Gateway API Inference Extension v1; an object has no other members.
const closed = (properties, required = []) => ({ type: "object", properties, required, additionalProperties: false });
const port = { type: "integer", minimum: 1, maximum: 65535 };
const name = { type: "string", minLength: 1, maxLength: 253 };
const inferencePool = new Ajv2020({ strict: true }).compile(
  closed(
    {
      apiVersion: { const: "inference.networking.k8s.io/v1" },
      kind: { const: "InferencePool" },
      metadata: closed({ name, namespace: name }, ["name"]),
      spec: closed(
        {
          selector: closed(
            { matchLabels: { type: "object", additionalProperties: { type: "string", maxLength: 63 } } },
            ["matchLabels"],
          ),
          targetPorts: { type: "array", minItems: 1, maxItems: 8, items: closed({ number: port }, ["number"]) },
          endpointPickerRef: closed(
            {
              group: { type: "string" },
              kind: { type: "string" },
              name,
              port: closed({ number: port }, ["number"]),
              failureMode: { enum: ["FailOpen", "FailClose"] },
            },
            ["name", "port"],
          ),
        },
        ["selector", "targetPorts", "endpointPickerRef"],
      ),
    },
    ["apiVersion", "kind", "metadata", "spec"],
  ),
);
const schemas = {
  "v1 Namespace": namespace,
  "v1 PersistentVolumeClaim": claim,
  "v1 ConfigMap": configMap,
  "v1 Service": service,
  "apps/v1 Deployment": deployment,
  "policy/v1 PodDisruptionBudget": budget,
  "networking.k8s.io/v1 NetworkPolicy": networkPolicy,
  "inference.networking.k8s.io/v1 InferencePool": inferencePool,
  "monitoring.coreos.com/v1 PodMonitor": podMonitor,
};

// A copy of value that notes which members are read: schemas allow others, but do not look at them.
function observed(value, path, unread) {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map((v, i) => observed(v, `${path}[${i}]`, unread));
  const members = Object.fromEntries(
    Object.entries(value).map(([k, v]) => (unread.add(`${path}.${k}`), [k, observed(v, `${path}.${k}`, unread)])),
  );
  return new Proxy(members, {
    get: (target, key) => (unread.delete(`${path}.${String(key)}`), target[key]),
  });
}

function check(resource) {
  const kind = `${resource.apiVersion} ${resource.kind}`;
  const validate = schemas[kind];
  assert.ok(validate, `a schema of ${kind}`);
  const unread = new Set();
  assert.ok(validate(observed(resource, kind, unread)), `${kind}: ${JSON.stringify(validate.errors)}`);
  assert.deepEqual([...unread], [], "members that the schema does not know");
}

test("every resource is what its schema says", () => {
  for (const resource of resources) check(resource);
  // The check itself: a wrong type, a member that is none.
  const wrong = structuredClone(of("Deployment"));
  wrong.spec.template.spec.containers[0].ports[0].containerPort = "http";
  assert.throws(() => check(wrong), /integer/);
  const odd = structuredClone(of("Deployment"));
  odd.spec.template.spec.containers[0].readynessProbe = {};
  assert.throws(() => check(odd), /readynessProbe/);
});

test("what refers to something finds it", () => {
  const { template, selector } = of("Deployment").spec;
  const [container] = template.spec.containers;
  const ports = new Map(container.ports.map((p) => [p.name, p.containerPort]));
  const selects = (labels) => Object.entries(labels).every(([k, v]) => template.metadata.labels[k] === v);
  for (const labels of [
    selector.matchLabels,
    of("Service").spec.selector,
    of("PodDisruptionBudget").spec.selector.matchLabels,
    of("NetworkPolicy").spec.podSelector.matchLabels,
    of("InferencePool").spec.selector.matchLabels,
    of("PodMonitor").spec.selector.matchLabels,
  ])
    assert.ok(Object.keys(labels).length > 0 && selects(labels), JSON.stringify(labels));
  const named = [
    ...of("Service").spec.ports.map((p) => p.targetPort),
    ...of("NetworkPolicy").spec.ingress.flatMap((rule) => rule.ports.map((p) => p.port)),
    ...of("PodMonitor").spec.podMetricsEndpoints.map((p) => p.port),
    ...["startupProbe", "livenessProbe", "readinessProbe"].map((p) => container[p].httpGet.port),
  ];
  for (const n of named) assert.ok(ports.has(n), n);
  assert.deepEqual(
    of("InferencePool").spec.targetPorts.map((p) => p.number),
    [ports.get("http")],
  );
  const mounts = container.volumeMounts.map((m) => m.name).sort();
  assert.deepEqual(mounts, template.spec.volumes.map((v) => v.name).sort());
  assert.equal(template.spec.volumes[0].persistentVolumeClaim.claimName, of("PersistentVolumeClaim").metadata.name);
  // The grace period covers the delay and the deadline of daemon.conf.
  const conf = readFileSync(join(base, "daemon.conf"), "utf8");
  const key = (k) => Number(new RegExp(`^${k} = (\\d+)$`, "m").exec(conf)[1]);
  assert.ok(template.spec.terminationGracePeriodSeconds > key("drain-delay-s") + key("shutdown-deadline-s"));
  assert.equal(key("port"), ports.get("http"));
});

test("kubectl builds it", (t) => {
  if (spawnSync("kubectl", ["version", "--client"]).error) return t.skip("kubectl is not here");
  const built = parseAllDocuments(execFileSync("kubectl", ["kustomize", base], { encoding: "utf8" })).map((d) =>
    d.toJS(),
  );
  assert.equal(built.length, resources.length + 1, "and the ConfigMap");
  for (const resource of built) {
    check(resource);
    if (resource.kind !== "Namespace") assert.equal(resource.metadata.namespace, "inferd");
  }
  const config = built.find((r) => r.kind === "ConfigMap");
  const pod = built.find((r) => r.kind === "Deployment").spec.template.spec;
  assert.equal(pod.volumes.find((v) => v.name === "config").configMap.name, config.metadata.name);
});

test("the daemon runs as the pod says, and the picker finds its metrics", async () => {
  const [container] = of("Deployment").spec.template.spec.containers;
  assert.deepEqual(
    container.args.map((a) => a.replace(/^\/.*|\$.*/, "-")),
    ["serve", "--config", "-", "--kv-events-name", "-"],
  );
  // Addresses and the model's place are this machine's.
  let conf = readFileSync(join(base, "daemon.conf"), "utf8");
  const hasLibrary = spawnSync("/sbin/ldconfig", ["-p"], { encoding: "utf8" }).stdout?.includes("libzmq.so.5");
  const [http, events, replay] = await Promise.all([freePort(), freePort(), freePort()]);
  for (const [from, to] of [
    ["/models/model.gguf", modelFile],
    ["host = 0.0.0.0", "host = 127.0.0.1"],
    ["port = 8080", `port = ${http}`],
    ["kv-events = tcp://*:5557", hasLibrary ? `kv-events = tcp://127.0.0.1:${events}` : ""],
    ["kv-events-replay = tcp://*:5558", hasLibrary ? `kv-events-replay = tcp://127.0.0.1:${replay}` : ""],
  ]) {
    assert.ok(conf.includes(from), from);
    conf = conf.replace(from, to);
  }
  const file = join(folder, "daemon.conf");
  writeFileSync(file, conf);
  assert.match(execFileSync(binary, ["config", "check", join(base, "daemon.conf")], { encoding: "utf8" }), /./);
  const server = await startServer(["--config", file, "--kv-events-name", "10.0.0.2:8080"]);
  try {
    for (const probe of ["startupProbe", "livenessProbe", "readinessProbe"])
      await until(
        async () => (await fetch(server.url + container[probe].httpGet.path)).status === 200,
        `${probe} succeeds`,
      );
    const { engineConfigs } = read("endpoint-picker.yaml").plugins.find(
      (p) => p.type === "core-metrics-extractor",
    ).parameters;
    const label = of("Deployment").spec.template.metadata.labels["llm-d.ai/engine-type"];
    const engine = engineConfigs.find((e) => e.name === label);
    const values = await metrics(server);
    for (const [key, spec] of Object.entries(engine))
      if (key.endsWith("Spec")) assert.ok(values.has(spec), `${key}: ${spec}`);
    assert.equal(values.get(engine.cacheBlockSizeSpec), 16);
    assert.equal(values.get(engine.kvUsageSpec), 0);
  } finally {
    await server.stop("SIGKILL");
  }
});

async function freePort() {
  const s = createServer();
  await new Promise((resolve) => s.listen(0, "127.0.0.1", resolve));
  const { port: free } = s.address();
  await new Promise((resolve) => s.close(resolve));
  return free;
}
