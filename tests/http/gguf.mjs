// A GGUF file with additional keys, as of a model of another family.
import { readFileSync, writeFileSync } from "node:fs";

const sizes = { 0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8 };
const ALIGNMENT = 32;

// keys: name -> an unsigned 32-bit number, a text, or an array of texts or of integers, none of which the file has;
// tensors: name -> {dims (fastest first), values: Float32Array}, likewise.
export function addKeys(from, to, keys, tensors = {}) {
  const file = readFileSync(from);
  let at = 24;
  const u64 = () => Number(file.readBigUInt64LE((at += 8) - 8));
  const u32 = () => file.readUInt32LE((at += 4) - 4);
  const skip = (n) => void (at += n);
  const skipText = () => skip(u64());
  const skipValue = (type) => {
    if (type === 8) return skipText();
    if (type !== 9) return skip(sizes[type]);
    const element = u32();
    for (let n = u64(); n > 0; n--) skipValue(element);
  };
  const nTensors = Number(file.readBigUInt64LE(8)),
    nKeys = Number(file.readBigUInt64LE(16));
  for (let i = 0; i < nKeys; i++) {
    skipText();
    skipValue(u32());
  }
  const keysEnd = at;
  for (let i = 0; i < nTensors; i++) {
    skipText();
    skip(8 * u32()); // dimensions
    skip(4 + 8); // type, offset
  }
  const pad = (n) => Buffer.alloc((ALIGNMENT - (n % ALIGNMENT)) % ALIGNMENT);
  const data = [file.subarray(at + pad(at).length)];
  const added = Object.entries(keys).map(([name, value]) => Buffer.concat([text(name), typed(value)]));
  const infos = Object.entries(tensors).map(([name, { dims, values }]) => {
    const size = data.reduce((sum, part) => sum + part.length, 0);
    data.push(pad(size), Buffer.from(values.buffer));
    const offset = size + pad(size).length;
    return Buffer.concat([text(name), number(dims.length), ...dims.map(long), number(0), long(offset)]);
  });
  const head = Buffer.concat([file.subarray(0, keysEnd), ...added, file.subarray(keysEnd, at), ...infos]);
  head.writeBigUInt64LE(BigInt(nTensors + infos.length), 8);
  head.writeBigUInt64LE(BigInt(nKeys + added.length), 16);
  writeFileSync(to, Buffer.concat([head, pad(head.length), ...data]));
}

const number = (n) => Buffer.from(Uint32Array.of(n).buffer);
const long = (n) => Buffer.from(BigUint64Array.of(BigInt(n)).buffer);
const text = (s) => Buffer.concat([long(Buffer.byteLength(s)), Buffer.from(s)]);
function typed(value) {
  if (typeof value === "number") return Buffer.concat([number(4), number(value)]);
  if (typeof value === "string") return Buffer.concat([number(8), text(value)]);
  const texts = typeof value[0] === "string";
  return Buffer.concat([number(9), number(texts ? 8 : 4), long(value.length), ...value.map(texts ? text : number)]);
}
