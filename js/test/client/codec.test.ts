// @vitest-environment node
import { deflateSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { decode, decodeReply, fromBase64, inflate } from "../../src/client/codec";
import type { EncodedHeader } from "../../src/client/protocol";
import { readFixture } from "../builders";

interface Case {
  name: string;
  header: EncodedHeader;
  data: string;
  values: number[][][];
}

// Bytes that Python encoded, and the values that `tests/fixtures/make_codec.py` computed by
// formula.
const { cases } = readFixture<{ cases: Case[] }>("codec.json");

describe("the codec", () => {
  it("decodes the fixture of Python's tests", () => {
    expect(cases.length).toBeGreaterThan(0);
    for (const { name, header, data, values } of cases) {
      const decoded = decode(header, fromBase64(data));
      const expected = values.flat(2);
      expect(decoded.length, name).toBe(expected.length);
      expected.forEach((value, i) => {
        expect(decoded[i], `${name}, value ${i}`).toBeCloseTo(value, 6);
      });
    }
  });

  it("reads an ArrayBuffer, and views of a larger buffer at offsets that are not multiples of 4", () => {
    const values = Float32Array.of(0.25, -1.5);
    const message = new Uint8Array(3 + 8);
    message.set(new Uint8Array(values.buffer), 3);
    const header: EncodedHeader = { shape: [1, 2, 1], encoding: "float32", maximum: 1, error: 0 };
    const part = [message.buffer, 3, 8] as const;
    // Notebook applications deliver a DataView (Jupyter, VS Code) or a Uint8Array (Colab).
    for (const buffer of [values.buffer, new DataView(...part), new Uint8Array(...part)])
      expect([...decode(header, buffer)]).toEqual([0.25, -1.5]);
  });

  it("reads exact weights whose bytes are grouped by significance and deflated", async () => {
    const weights = Float32Array.from([0, 0.1, 1, 0, 1e-20, 0.75]);
    const bytes = new Uint8Array(weights.buffer);
    const planes = Uint8Array.from(bytes, (_, i) => bytes[4 * (i % 6) + Math.floor(i / 6)] ?? 0);
    const sizes = { shape: [1, 2, 3], maximum: 1, error: 0 };
    const header = { ...sizes, encoding: "float32-deflated" } as EncodedHeader;
    const decoded = await decodeReply(header, new Uint8Array(deflateSync(planes)));
    expect([...decoded]).toEqual([...weights]);
    const short = new Uint8Array(deflateSync(planes.subarray(0, 20)));
    await expect(decodeReply(header, short)).rejects.toThrow(/20 bytes/);
  });

  it.each<[string, string, number, RegExp]>([
    ["too few bytes", "uint8-sqrt", 7, /7 bytes, .* needs 8/],
    ["too many bytes", "uint8-sqrt", 9, /9 bytes, but its shape 2 x 2 x 2 needs 8/],
    ["an unknown encoding", "float8", 8, /float8/],
  ])("rejects %s", (_, encoding, length, message) => {
    const header = { shape: [2, 2, 2], encoding, maximum: 1, error: 0 } as EncodedHeader;
    expect(() => decode(header, new Uint8Array(length))).toThrow(message);
  });

  it("reports damaged bytes and damaged base64", async () => {
    const bytes = Uint8Array.from({ length: 5000 }, (_, i) => i % 251);
    const deflated = new Uint8Array(deflateSync(bytes));
    for (const position of [3, deflated.length >> 1, deflated.length - 1]) {
      const changed = deflated.slice();
      changed[position] = (changed[position] as number) ^ 1;
      await expect(inflate(changed)).rejects.toThrow(/data are damaged/);
    }
    await expect(inflate(deflated.slice(0, 20))).rejects.toThrow(/data are damaged/);
    expect(() => fromBase64("eJw!")).toThrow(/data are damaged/);
  });
});
