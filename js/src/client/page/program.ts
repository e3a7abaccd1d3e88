/**
 * Transport of a page that a program opened to draw a figure. The program answers the requests of
 * the view as a kernel does, so the figure has the numbers of the view and not the rounded numbers
 * of an exported page. `attnviz/pages/image.py` is this program.
 */

import { fromBase64 } from "../codec";
import { MAX_REPLY_BYTES, type Reply, type Transport } from "../transport";

/** Reply of the program: a header and bytes in base64, or the message of an error. */
type ProgramReply = { header: object; data: string | null } | { problem: string };

/** Function that the program defines in the page. */
type Answer = (name: string, args: object) => Promise<ProgramReply>;

/** Return the transport, or null if no program answers, as in a page that a reader opens. */
export function programTransport(): Transport | null {
  const answer = (globalThis as { attnvizAnswer?: Answer }).attnvizAnswer;
  if (BUNDLE_FOR === "widget" || !answer) return null;
  return {
    live: false,
    maxReplyBytes: MAX_REPLY_BYTES,
    async request(name: string, args: object, signal?: AbortSignal): Promise<Reply> {
      const reply = await answer(name, args);
      signal?.throwIfAborted();
      if ("problem" in reply) throw new Error(reply.problem);
      return { header: reply.header, data: reply.data === null ? null : fromBase64(reply.data) };
    },
  };
}
