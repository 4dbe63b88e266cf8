/**
 * The port on which rank 0 listens. It limits the bytes, the time and the connections of peers that ZeroMQ has not authenticated.
 * ZeroMQ itself listens on a private socket of this host, to which the gate connects each peer.
 */
import { lookup } from "node:dns/promises";
import { connect, createServer, isIP, type NetConnectOpts, type Server, type Socket } from "node:net";
import { networkInterfaces } from "node:os";

/**
 * The maximum number of bytes that a peer sends before it is authenticated. A greeting has 64 bytes, HELLO has 202, and INITIATE
 * has 259 plus the metadata of the socket (ZeroMQ RFC 23 and RFC 26).
 */
export const MAX_HANDSHAKE_BYTES = 4096;

/** How long a peer may take to be authenticated, in milliseconds. */
export const HANDSHAKE_MS = 10_000;

/** The maximum number of unauthenticated connections, in addition to one for each rank. The oldest one is closed first. */
export const MAX_STRANGERS = 64;

/**
 * The bytes that ZeroMQ sends before it has authenticated a peer: a greeting of 64 bytes and WELCOME of 170 (ZeroMQ RFC 26). Only
 * a peer that knows the key of the job gets more.
 */
const BYTES_TO_STRANGERS = 64 + 170;

/** How long connections may last after the gate has closed, in milliseconds. */
const CLOSE_MS = 1000;

/** Limits of a gate. */
export interface GateLimits {
  readonly handshakeMs: number;
  /** The maximum number of connections that are not authenticated. */
  readonly strangers: number;
}

export class Gate {
  readonly #server: Server;
  readonly #connections = new Set<Socket>();
  /** The connections that are not authenticated, from the oldest to the newest. */
  readonly #strangers = new Set<Socket>();

  /** @param inner the address of the private socket on which ZeroMQ listens, as its `lastEndpoint` gives it */
  constructor(
    private readonly inner: string,
    private readonly limits: GateLimits,
  ) {
    this.#server = createServer((peer) => this.#admit(peer));
  }

  /** Listens at the host of rank 0. Throws the error of the system if it cannot. */
  async listen(address: string, port: number): Promise<void> {
    const host = await interfaceOf(address);
    await new Promise<void>((resolve, reject) => {
      this.#server.once("error", reject);
      this.#server.listen({ port, ...(host === undefined ? {} : { host }) }, () => {
        this.#server.off("error", reject);
        // an error while a connection is accepted affects only that connection
        this.#server.on("error", () => undefined);
        resolve();
      });
    });
  }

  /** Stops listening and resolves when all connections have ended. Connections are cut off after a second. */
  async close(): Promise<void> {
    const ended = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    for (const stranger of this.#strangers) stranger.destroy();
    const timer = setTimeout(() => {
      for (const connection of this.#connections) connection.destroy();
    }, CLOSE_MS);
    if (this.#server.listening || this.#connections.size > 0) await ended;
    clearTimeout(timer);
  }

  #admit(peer: Socket): void {
    const [oldest] = this.#strangers;
    if (oldest && this.#strangers.size >= this.limits.strangers) oldest.destroy();
    this.#connections.add(peer);
    this.#strangers.add(peer);
    const hub = connect(optionsOf(this.inner));
    const timer = setTimeout(() => peer.destroy(), this.limits.handshakeMs);
    let receivedBytes = 0;
    let sentBytes = 0;
    const forwardLimited = (bytes: Uint8Array): void => {
      receivedBytes += bytes.length;
      if (receivedBytes > MAX_HANDSHAKE_BYTES) peer.destroy();
      else hub.write(bytes);
    };
    const awaitAuthentication = (bytes: Uint8Array): void => {
      sentBytes += bytes.length;
      if (sentBytes <= BYTES_TO_STRANGERS) return;
      clearTimeout(timer);
      this.#strangers.delete(peer);
      peer.off("data", forwardLimited);
      hub.off("data", awaitAuthentication);
      peer.pipe(hub);
    };
    peer.on("data", forwardLimited);
    hub.on("data", awaitAuthentication);
    hub.pipe(peer);
    for (const [end, otherEnd] of [
      [peer, hub],
      [hub, peer],
    ] as const) {
      end.setNoDelay();
      // an error is followed by "close"
      end.on("error", () => undefined);
      end.on("close", () => otherEnd.destroySoon());
    }
    peer.on("close", () => {
      clearTimeout(timer);
      this.#strangers.delete(peer);
      this.#connections.delete(peer);
    });
  }
}

/** The options that connect to a ZeroMQ address, which begins with `ipc://` or `tcp://`. */
function optionsOf(endpoint: string): NetConnectOpts {
  const path = /^ipc:\/\/(.*)$/.exec(endpoint)?.[1];
  if (path !== undefined) return { path };
  const { hostname, port } = new URL(endpoint);
  return { host: hostname, port: Number(port) };
}

/**
 * Returns the address of the interface on which rank 0 listens; undefined for all interfaces. Rank 0 listens on all interfaces
 * for an address that this host does not have, because it may be translated on the way. It also does for a name that resolves to
 * several addresses, or on this host to the loopback interface (many systems resolve their own name in this way), because other
 * hosts may resolve such a name to another address.
 */
export async function interfaceOf(address: string): Promise<string | undefined> {
  if (address === "localhost") return "127.0.0.1"; // ZeroMQ resolves names to IPv4 addresses
  const host = withoutBrackets(address);
  const addresses = await lookup(host, { all: true }).catch(() => []);
  const first = addresses[0]?.address;
  if (first === undefined) return undefined;
  if (isIP(host) !== 0 && isLoopback(first)) return first;
  const ofHost = Object.values(networkInterfaces()).flatMap((each) => each ?? []);
  const isOfHost = ofHost.some((each) => each.address === first && !each.internal);
  return addresses.length === 1 && isOfHost ? first : undefined;
}

/** Removes the brackets around an IPv6 address, if there are any. */
export const withoutBrackets = (address: string): string => address.replace(/^\[(.*)\]$/, "$1");

const isLoopback = (address: string): boolean => address === "::1" || /^127\./.test(address);
