/**
 * A record that grows while a model generates: what the kernel tells of each token.
 *
 * A stack's name says at which length it is meant, "self@57", and what is known of it does not change
 * any more. `attnviz/server/growing.py` is the other side.
 */

import type { Description, PieceHeader, Prediction, StackDescription } from "./protocol";

/** How far a generation is. */
export interface Generating {
  came: number;
  /** Tokens that may come; null where only the whole length is bounded. */
  most: number | null;
  /** Tokens a second; null before the second. */
  rate: number | null;
  state: "running" | "stopped" | "ended" | "failed";
  /** What went wrong. */
  problem?: string;
}

/** What the kernel tells of a token that was read, and of what was predicted from it. */
export interface GrownMessage {
  /** Tokens that there are with it. */
  count: number;
  generating: Generating;
  text?: string;
  prediction?: Prediction;
  stack?: string;
  /** The layer whose rows come with the message. */
  layer?: number;
  header?: PieceHeader & { heads: number[] };
}

/** A description of a record that grows, or has grown. */
export interface GrowingDescription extends Description {
  generating?: Generating;
}

/** A stack's name at a length. */
export function atLength(name: string, count: number): string {
  return `${name}@${count}`;
}

/** The name of a stack whatever its length. */
export function withoutLength(name: string): string {
  return name.replace(/@\d+$/, "");
}

/** The stack that grows, and how long it is; null where none does. */
export function growingStack(
  description: Description,
  name: string,
): { stack: StackDescription; count: number } | null {
  const stack = description.stacks.find(
    (each) => each.name !== name && withoutLength(each.name) === name,
  );
  return stack ? { stack, count: stack.query_tokens.text.length } : null;
}

/** A description with one more token; null where others are missing before it. */
export function withToken(
  description: GrowingDescription,
  message: GrownMessage,
): GrowingDescription | null {
  const { stack: name = "", text = "", prediction, count } = message;
  const grown = growingStack(description, name);
  if (!grown || grown.count !== count - 1 || !prediction) return null;
  const { query_tokens: tokens } = grown.stack;
  const before = tokens.predictions ?? [];
  const last = before.at(-1);
  const predictions = [
    ...before.slice(0, -1),
    // It was not read when it came.
    ...(last ? [{ ...last, row: count - 1 }] : []),
    prediction,
  ];
  const stack: StackDescription = {
    ...grown.stack,
    name: atLength(name, count),
    query_tokens: {
      ...tokens,
      text: [...tokens.text, text],
      sequence: [...tokens.sequence, 1],
      predictions,
    },
  };
  const stacks = description.stacks.map((each) => (each === grown.stack ? stack : each));
  return { ...description, stacks, generating: message.generating };
}
