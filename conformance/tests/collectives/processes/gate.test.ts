/** Peers without the token take a bounded number of bytes, connections and seconds, and never keep a rank from joining. */
import { once } from "node:events";
import { connect, createServer, type Server, type Socket } from "node:net";
import { networkInterfaces } from "node:os";
import fc from "fast-check";
import { afterEach, describe, expect, it } from "vitest";
import {
  Gate,
  interfaceOf,
  MAX_HANDSHAKE_BYTES,
  MAX_STRANGERS,
} from "../../../../src/collectives/processes/gate.js";
import { Hub } from "../../../../src/collectives/processes/hub.js";
import { Spoke } from "../../../../src/collectives/processes/spoke.js";
import { draws } from "../../harness/draws.js";
import { freePort } from "../../harness/ranks/processes.js";

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

const GREETING = Buffer.alloc(64);
GREETING.set([0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 1]);
GREETING.write("CURVE", 12);

/** The head of a ZeroMQ command that announces a number of bytes. */
function announceBytes(bytes: bigint): Buffer {
  const head = Buffer.alloc(9);
  head[0] = 0x06; // a command whose length has 8 bytes
  head.writeBigUInt64BE(bytes, 1);
  return head;
}

/** The bytes that a stranger sends: a prefix, and then zeros up to a number of bytes or until the connection ends. */
interface Stranger {
  readonly begin: Buffer;
  readonly bytes: number;
}

const strangers: fc.Arbitrary<Stranger> = fc.record({
  begin: fc.oneof(
    fc.constant(Buffer.alloc(0)),
    fc.constant(Buffer.from("GET / HTTP/1.1\r\n\r\n")),
    fc.nat(63).map((length) => GREETING.subarray(0, length)),
    fc.bigInt(0n, (1n << 64n) - 1n).map((bytes) => Buffer.concat([GREETING, announceBytes(bytes)])),
    fc.uint8Array({ maxLength: 300 }).map((bytes) => Buffer.from(bytes)),
  ),
  bytes: fc.oneof(fc.constant(0), fc.nat(10_000), fc.constant(1 << 20)),
});

const ZEROS = Buffer.alloc(1 << 16);

/** Connects a stranger, which sends until it has sent all bytes or the connection ends. */
function send(port: number, { begin, bytes }: Stranger): Socket {
  const socket = connect(port, "127.0.0.1");
  socket.on("error", () => undefined);
  socket.resume();
  let bytesLeft = bytes;
  const sendMore = (): void => {
    while (bytesLeft > 0 && !socket.destroyed) {
      const size = Math.min(bytesLeft, ZEROS.length);
      bytesLeft -= size;
      if (!socket.write(ZEROS.subarray(0, size))) return;
    }
  };
  socket.on("drain", sendMore);
  socket.write(begin, sendMore);
  ends.push(() => socket.destroy());
  return socket;
}

/** Resolves when a connection has ended, by an error or without one. */
const connectionEnd = (socket: Socket): Promise<unknown> =>
  new Promise((resolve) => (socket.closed ? resolve(0) : socket.once("close", resolve)));

/**
 * A server in place of ZeroMQ's private socket. It sends as many bytes as a test requests, and records the bytes that it
 * receives.
 */
async function startServer(answerBytes: number) {
  const bytesReceived: number[] = [];
  const record = { openConnections: 0, maxConnections: 0, bytesReceived, port: 0 };
  const server: Server = createServer((socket) => {
    const i = bytesReceived.push(0) - 1;
    record.maxConnections = Math.max(record.maxConnections, ++record.openConnections);
    socket.on("data", (data) => {
      bytesReceived[i] = (bytesReceived[i] ?? 0) + data.length;
    });
    socket.on("error", () => undefined);
    socket.on("close", () => record.openConnections--);
    socket.write(ZEROS.subarray(0, answerBytes));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  ends.push(() => server.close());
  record.port = (server.address() as { port: number }).port;
  return record;
}

async function openGate(port: number, limits: { strangers: number; handshakeMs: number }) {
  const gate = new Gate(`tcp://127.0.0.1:${port}`, limits);
  const gatePort = await freePort();
  await gate.listen("127.0.0.1", gatePort);
  ends.push(() => gate.close());
  return gatePort;
}

describe("peers that are not authenticated", () => {
  it("reach ZeroMQ with a bounded number of bytes on a bounded number of connections for a bounded time", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(strangers, { minLength: 1, maxLength: 20 }),
        fc.integer({ min: 1, max: 6 }),
        fc.constantFrom(0, 64, 234),
        async (peers, limit, answerBytes) => {
          const zeromq = await startServer(answerBytes);
          const port = await openGate(zeromq.port, { strangers: limit, handshakeMs: 100 });
          const sockets = peers.map((peer) => send(port, peer));
          await Promise.all(sockets.map((socket) => connectionEnd(socket)));
          for (const bytes of zeromq.bytesReceived) expect(bytes).toBeLessThanOrEqual(MAX_HANDSHAKE_BYTES);
          // a connection that the gate has closed may be open at its other end for a moment
          expect(zeromq.maxConnections).toBeLessThanOrEqual(limit + 3);
        },
      ),
      { numRuns: draws(15) },
    );
  });

  it("are cut off by none of the limits once ZeroMQ has authenticated them", async () => {
    const zeromq = await startServer(235);
    const port = await openGate(zeromq.port, { strangers: 1, handshakeMs: 100 });
    const rank = connect(port, "127.0.0.1");
    await once(rank, "data");
    for (let i = 0; i < 5; i++) await once(send(port, { begin: GREETING, bytes: 0 }), "data");
    await new Promise((resolve) => setTimeout(resolve, 300));
    rank.end(Buffer.alloc(100_000));
    await once(rank, "close");
    await expect.poll(() => Math.max(...zeromq.bytesReceived)).toBe(100_000);
  });
});

/** A hub of a job of two ranks, and the place of the other rank. */
async function job(address = "127.0.0.1") {
  const port = await freePort();
  const place = { size: 2, address, port, token: "the job's own", timeoutMs: 20_000 };
  const hub = new Hub({ ...place, rank: 0 }, () => undefined);
  const opening = hub.open();
  return { hub, opening, port, rank1: { ...place, rank: 1 } };
}

/** Connects a rank, and ends the job. */
async function expectJoined({ hub, opening, rank1 }: Awaited<ReturnType<typeof job>>): Promise<void> {
  const speaker = new Spoke(rank1, () => undefined);
  expect(await Promise.all([speaker.open(), opening])).toEqual([undefined, undefined]);
  await Promise.all([speaker.leave(), hub.leave()]);
}

describe("rank 0", () => {
  it("takes no memory for what strangers announce and send, and lets its rank in", async () => {
    const gateJob = await job();
    await expect.poll(() => connects(gateJob.port)).toBe(true);
    const memoryBefore = process.memoryUsage().rss;
    const peers = Array.from({ length: 60 }, () =>
      send(gateJob.port, { begin: Buffer.concat([GREETING, announceBytes(2n ** 33n)]), bytes: 25 << 20 }),
    );
    let maxGrowth = 0;
    const watch = setInterval(() => {
      maxGrowth = Math.max(maxGrowth, process.memoryUsage().rss);
    }, 10);
    await Promise.all(peers.map((socket) => connectionEnd(socket)));
    clearInterval(watch);
    expect(maxGrowth - memoryBefore).toBeLessThan(150 << 20);
    await expectJoined(gateJob);
  });

  it("keeps few of many idle connections, and lets its rank in while strangers open more", async () => {
    const gateJob = await job();
    await expect.poll(() => connects(gateJob.port)).toBe(true);
    const idleSockets = Array.from({ length: 300 }, () => send(gateJob.port, { begin: GREETING, bytes: 0 }));
    await expect
      .poll(() => idleSockets.filter((socket) => !socket.destroyed).length, { timeout: 5000 })
      .toBeLessThanOrEqual(MAX_STRANGERS + 2);
    const flood = setInterval(() => send(gateJob.port, { begin: GREETING, bytes: 0 }), 2);
    ends.push(() => clearInterval(flood));
    await expectJoined(gateJob);
  });

  it("cannot be reached by another interface than the one that its address names", async () => {
    const hostAddresses = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? []);
    const outsideAddress = hostAddresses.find(
      ({ internal, family }) => !internal && family === "IPv4",
    )?.address;
    const gateJob = await job();
    await expect.poll(() => connects(gateJob.port)).toBe(true);
    expect(await connects(gateJob.port, "127.0.0.2")).toBe(false);
    if (outsideAddress !== undefined) expect(await connects(gateJob.port, outsideAddress)).toBe(false);
    await expectJoined(gateJob);
  });
});

async function connects(port: number, host = "127.0.0.1"): Promise<boolean> {
  const socket = connect(port, host);
  const connection = await once(socket, "connect").then(
    () => true,
    () => false,
  );
  socket.destroy();
  return connection;
}

describe("the interface on which rank 0 listens", () => {
  it.each([
    ["localhost", "127.0.0.1"],
    ["127.0.0.1", "127.0.0.1"],
    ["127.5.6.7", "127.5.6.7"],
    ["::1", "::1"],
    ["[::1]", "::1"],
    ["192.0.2.1", undefined], // an address of documentation (RFC 5737), so not of this host
    ["no.such.host.invalid", undefined],
  ])("of the address %s is %s", async (address, expected) => {
    expect(await interfaceOf(address)).toBe(expected);
  });

  it("is each of this host's own, if the address is of it", async () => {
    for (const { address, internal, family } of Object.values(networkInterfaces()).flatMap(
      (addresses) => addresses ?? [],
    ))
      if (!internal && family === "IPv4") expect(await interfaceOf(address)).toBe(address);
  });
});
