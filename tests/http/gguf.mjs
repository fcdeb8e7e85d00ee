// A GGUF file with additional keys, as of a model of another family.
import { readFileSync, writeFileSync } from "node:fs";

const sizes = { 0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8 };
const ALIGNMENT = 32;

// keys: name -> unsigned 32-bit number, none of which the file has.
export function addKeys(from, to, keys) {
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
  const added = Object.entries(keys).map(([name, value]) => {
    const bytes = Buffer.alloc(8 + name.length + 8);
    bytes.writeBigUInt64LE(BigInt(name.length), 0);
    bytes.write(name, 8);
    bytes.writeUInt32LE(4, 8 + name.length);
    bytes.writeUInt32LE(value, 12 + name.length);
    return bytes;
  });
  const head = Buffer.concat([file.subarray(0, keysEnd), ...added, file.subarray(keysEnd, at)]);
  head.writeBigUInt64LE(BigInt(nKeys + added.length), 16);
  const pad = (n) => Buffer.alloc((ALIGNMENT - (n % ALIGNMENT)) % ALIGNMENT);
  writeFileSync(to, Buffer.concat([head, pad(head.length), file.subarray(at + pad(at).length)]));
}
