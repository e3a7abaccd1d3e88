/** Strongest keys of queries, from the weights of an exported page. */

import type { StackDescription, StrongestRequest } from "../protocol";
import { strongestOf, tokenFilter } from "../requests/strongest";
import { larger } from "../signs";
import type { Reply } from "../transport";
import type { Rows } from "./rows";

/** Answer a request for the strongest keys, as a kernel would. */
export function pageStrongest(
  rows: Rows,
  request: StrongestRequest,
  stack: StackDescription,
): Reply {
  const numKeys = rows.shape[2];
  const queries = stack.query_tokens;
  const sides = { queries, keys: stack.key_tokens ?? queries };
  const meant = tokenFilter(sides, request.leave_out, request.pair);
  const groups =
    request.combine === "separate" ? request.heads.map((head) => [head]) : [request.heads];
  const found = groups.map((heads) => {
    const line = new Float32Array(numKeys);
    const one = new Float32Array(numKeys);
    const rowAt = (row: number): Float32Array => {
      line.fill(0);
      if (request.combine !== "max") {
        rows.add(heads, row, 0, line);
        return heads.length > 1 ? line.map((value) => value / heads.length) : line;
      }
      for (const head of heads) {
        rows.add([head], row, 0, one.fill(0));
        one.forEach((value, key) => {
          line[key] = larger(line[key] as number, value);
        });
      }
      return line;
    };
    return strongestOf(rowAt, request, numKeys, meant);
  });
  return { header: { found }, data: null };
}
