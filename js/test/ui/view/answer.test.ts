/** Tests of answers to questions that change. */

import { effect, signal } from "@preact/signals";
import { expect, it, vi } from "vitest";
import { createAnswer } from "../../../src/ui/view/answer";
import { pass, until, useFakeClock } from "../../dom";

useFakeClock();

it("ignores the answer to an earlier question that arrives late", async () => {
  const question = signal<number | null>(1);
  const replies = new Map<number, (answer: string) => void>();
  const answered = createAnswer(
    question,
    (asked) => new Promise<string>((resolve) => replies.set(asked, resolve)),
  );
  effect(answered.run);
  question.value = 2;
  replies.get(2)?.("two");
  await until(() => expect(answered.current.value).toBe("two"));
  replies.get(1)?.("one");
  await pass(10);
  expect(answered.latest.value).toEqual({ question: 2, answer: "two" });
  question.value = 1;
  expect(answered.current.value).toBeNull();
  expect(answered.latest.value?.answer).toBe("two");
});

it("asks an equal question only if a signal repeats it, and reports how it settled", async () => {
  const [question, again] = [signal<{ head: number } | null>({ head: 1 }), signal(0)];
  const ask = vi.fn(async ({ head }: { head: number }) => {
    if (head === 2) throw new Error("no head 2");
    return head;
  });
  const settled = vi.fn();
  const stop = effect(createAnswer(question, ask, [again], settled).run);
  question.value = { head: 1 };
  await until(() => expect(settled.mock.calls).toEqual([[{ head: 1 }]]));
  again.value++;
  await until(() => expect(settled).toHaveBeenCalledTimes(2));
  expect(ask).toHaveBeenCalledTimes(2);
  question.value = { head: 2 };
  await until(() => expect(settled).toHaveBeenCalledTimes(3));
  expect(settled).toHaveBeenLastCalledWith({ head: 2 }, new Error("no head 2"));
  question.value = null;
  expect(settled).toHaveBeenLastCalledWith(null);
  question.value = { head: 2 };
  stop();
  await pass(10);
  expect(settled).toHaveBeenCalledTimes(4);
});
