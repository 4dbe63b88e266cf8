/**
 * A subject as a program (docs/protocol.md) that does not use the library's frame code: it quantizes with the command line in a
 * child process. Its argument selects a fault.
 */
import { Buffer } from "node:buffer";
import { readSync, writeSync } from "node:fs";

const [, , fault = "none"] = process.argv;
const STDIN = 0;
const STDOUT = 1;

function readExactly(count) {
  const bytes = Buffer.alloc(count);
  for (let at = 0; at < count; ) {
    let read = 0;
    try {
      read = readSync(STDIN, bytes, at, count - at, null);
    } catch (error) {
      if (error.code !== "EAGAIN") throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
      continue;
    }
    if (read === 0) process.exit(0);
    at += read;
  }
  return bytes;
}

function readFrame() {
  const payload = readExactly(Number(readExactly(8).readBigUInt64LE()));
  const length = Number(payload.readBigUInt64LE());
  const { __metadata__: metadata, ...tensors } = JSON.parse(payload.subarray(8, 8 + length).toString());
  const data = payload.subarray(8 + length);
  const bytes = Object.fromEntries(
    Object.entries(tensors).map(
      ([
        name,
        {
          data_offsets: [begin, end],
        },
      ]) => [name, data.subarray(begin, end)],
    ),
  );
  return { message: JSON.parse(metadata.lockstep), tensors, bytes };
}

function writeFrame(message, tensors = {}) {
  const header = { __metadata__: { lockstep: JSON.stringify(message) } };
  let at = 0;
  for (const [name, { dtype, shape, bytes }] of Object.entries(tensors)) {
    header[name] = { dtype, shape, data_offsets: [at, at + bytes.length] };
    at += bytes.length;
  }
  const text = Buffer.from(JSON.stringify(header));
  const prefix = Buffer.alloc(16);
  prefix.writeBigUInt64LE(BigInt(8 + text.length + at), 0);
  prefix.writeBigUInt64LE(BigInt(text.length), 8);
  const all = Buffer.concat([prefix, text, ...Object.values(tensors).map(({ bytes }) => bytes)]);
  for (let done = 0; done < all.length; ) {
    try {
      done += writeSync(STDOUT, all, done);
    } catch (error) {
      if (error.code !== "EAGAIN") throw error;
    }
  }
}

/** The e8m0 code of a positive power of two, found by decoding each code. */
function decodeE8m0(codes, dtype) {
  const values = Array.from(codes, (code) => (code === 255 ? Number.NaN : 2 ** (code - 127)));
  if (dtype === "f32") return Buffer.from(Float32Array.from(values).buffer);
  const f32 = new Uint32Array(Float32Array.from(values).buffer);
  return Buffer.from(Uint16Array.from(f32, (bits) => bits >>> 16).buffer);
}

const HELLO = {
  protocol: 1,
  name: "e8m0 in JavaScript",
  operations: { decode: { format: ["e8m0"], dtype: ["f32", "bf16"] } },
};

/** The wrong hello of each fault. */
const HELLOS = {
  protocol: { ...HELLO, protocol: 2 },
  operation: { ...HELLO, operations: { dequantise: {} } },
  field: { ...HELLO, operations: { decode: { formatt: ["e8m0"] } } },
  values: { ...HELLO, operations: { decode: { format: "e8m0" } } },
  nothing: { ...HELLO, operations: {} },
};

const FAULTS = {
  none: (id, right) => writeFrame({ id }, right),
  bits: (id, { values }) =>
    writeFrame({ id }, { values: { ...values, dtype: values.dtype === "F32" ? "U32" : "U16" } }),
  wrong: (id, { values }) => {
    const bytes = Buffer.from(values.bytes);
    if (bytes.length > 0) bytes[0] ^= 1;
    writeFrame({ id }, { values: { ...values, bytes } });
  },
  name: (id, { values }) => writeFrame({ id }, { value: values }),
  shape: (id, { values }) =>
    writeFrame({ id }, { values: { ...values, shape: [values.bytes.length], dtype: "U8" } }),
  id: (id, right) => writeFrame({ id: id + 1 }, right),
  declines: (id) => writeFrame({ id, declined: "not on Mondays" }),
  reports: (id) => writeFrame({ id, error: "out of registers" }),
  crash: () => {
    process.stderr.write("about to fall\n");
    process.abort();
  },
  exit: () => process.exit(3),
  hang: () => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0),
  noise: () => writeSync(STDOUT, "loaded 3 kernels\n"),
  silent: () => process.exit(0),
  json: (_id, right) => writeFrame("yes", right),
};

for (;;) {
  const { message, tensors, bytes } = readFrame();
  if (message.type === "report") {
    process.stderr.write(JSON.stringify(message));
    process.exit(0);
  }
  if (message.type === "hello") {
    if (fault === "start") process.exit(4);
    writeFrame(HELLOS[fault] ?? HELLO);
    continue;
  }
  const { input, outputs, id } = message;
  const { shape } = outputs.values ?? Object.values(outputs)[0];
  const right = {
    dtype: input.dtype === "f32" ? "F32" : "BF16",
    shape,
    bytes: decodeE8m0(bytes.codes, input.dtype),
  };
  if (tensors.codes.dtype !== "U8") throw new Error(`codes are ${tensors.codes.dtype}`);
  (FAULTS[fault] ?? FAULTS.none)(id, { values: right });
}
