/** The keys of a job, derived from its token. Only processes that know the token pass ZeroMQ's CURVE handshake. */
import { createHash, createPrivateKey, createPublicKey } from "node:crypto";

/** A pair of Curve25519 keys in Z85, the encoding that ZeroMQ uses. */
export interface Keys {
  readonly publicKey: string;
  readonly secretKey: string;
}

/** The first bytes of a PKCS #8 document of an X25519 key; the 32 bytes of the key follow (RFC 8410 §7). */
const PKCS8_X25519 = Buffer.from("302e020100300506032b656e04220420", "hex");
const KEY_BYTES = 32;

export function keysOf(token: string): Keys {
  const secret = createHash("sha256").update(`lockstep job ${token}`).digest();
  const key = createPrivateKey({ key: Buffer.concat([PKCS8_X25519, secret]), format: "der", type: "pkcs8" });
  const spki = createPublicKey(key).export({ format: "der", type: "spki" });
  return { publicKey: z85(spki.subarray(-KEY_BYTES)), secretKey: z85(secret) };
}

const DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";

/** Encodes every four bytes as five characters (Z85, ZeroMQ RFC 32). */
function z85(bytes: Buffer): string {
  let out = "";
  for (let offset = 0; offset < bytes.length; offset += 4) {
    let word = bytes.readUInt32BE(offset);
    let digits = "";
    for (let i = 0; i < 5; i++) {
      digits = (DIGITS[word % 85] as string) + digits;
      word = Math.floor(word / 85);
    }
    out += digits;
  }
  return out;
}
