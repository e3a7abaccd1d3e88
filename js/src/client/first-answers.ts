/**
 * What a view asks first, answered in the message that opened its widget: it draws without a round
 * trip to the kernel. `attnviz/server/first_answers.py` is the other side.
 */

import type { Reply } from "./carrier";
import { asBytes, inflate } from "./codec";
import type { FirstReply } from "./protocol";

/** A widget's state, from which the answers are taken. */
export interface AnswersModel {
  get?(name: string): unknown;
  set?(name: string, value: unknown): void;
}

/** What the trait holds: all answers, and one buffer with the data of each after the other. */
interface FirstAnswers {
  replies: FirstReply[];
  data: ArrayBufferView | ArrayBuffer | null;
}

/** The trait that has them. */
const TRAIT = "_first_answers";

/** A request as one text, whatever the order of its arguments. */
function keyOf(name: string, args: object): string {
  const entries = Object.entries(args).filter(([, value]) => value !== undefined);
  return JSON.stringify([name, entries.sort(([one], [other]) => (one < other ? -1 : 1))]);
}

interface Known extends Omit<FirstReply, "bytes"> {
  bytes: Uint8Array | null;
}

async function replyOf({ header, bytes, deflated }: Known): Promise<Reply> {
  const data = bytes && deflated ? await inflate(bytes as Uint8Array<ArrayBuffer>) : bytes;
  return { header, data };
}

/** Answers that came with a widget. */
export class FirstReplies {
  readonly #known = new Map<string, Known>();
  readonly #stays: boolean;

  /**
   * Takes them out of the widget's state, so that they are neither held twice nor saved with a
   * notebook.
   *
   * @param stays whether they are all that there ever is, as no kernel has the answers.
   */
  constructor(model: AnswersModel, stays: boolean) {
    this.#stays = stays;
    const answers = model.get?.(TRAIT) as FirstAnswers | null | undefined;
    if (!answers?.replies) return;
    // Twice, because a model has its last values as well.
    if (!stays) for (const nothing of ["", null]) model.set?.(TRAIT, nothing);
    // A host that drops buffers has dropped this one, too.
    const data = answers.data ? asBytes(answers.data) : new Uint8Array(0);
    let start = 0;
    for (const { bytes: length, ...reply } of answers.replies) {
      const bytes = length === undefined ? null : data.subarray(start, start + length);
      start += length ?? 0;
      if (bytes && bytes.length !== length) continue;
      this.#known.set(keyOf(reply.name, reply.arguments), { ...reply, bytes });
    }
  }

  has(name: string, args: object): boolean {
    return this.#known.has(keyOf(name, args));
  }

  /** The answer to a request, once; null where it did not come along. */
  take(name: string, args: object): Promise<Reply> | null {
    const key = keyOf(name, args);
    const known = this.#known.get(key);
    if (!known) return null;
    if (!this.#stays) this.#known.delete(key);
    return replyOf(known);
  }
}
