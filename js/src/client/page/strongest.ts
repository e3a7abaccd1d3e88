/** Strongest keys of queries, from the weights of an exported page. */

import type { StackDescription, StrongestRequest } from "../protocol";
import { strongestOf, tokenFilter } from "../requests/strongest";
import { larger } from "../signs";
import type { Reply } from "../transport";
import type { WeightRows } from "./rows";

/** Answer a request for the strongest keys, as a kernel would. */
export function pageStrongest(
  rows: WeightRows,
  request: StrongestRequest,
  stack: StackDescription,
): Reply {
  const numKeys = rows.shape[2];
  const queries = stack.query_tokens;
  const sides = { queries, keys: stack.key_tokens ?? queries };
  const meant = tokenFilter(sides, request.leave_out, request.pair);
  const groups =
    request.combine === "separate" ? request.heads.map((head) => [head]) : [request.heads];
  const matrices = groups.map((heads) => {
    const combined = new Float32Array(numKeys);
    const headRow = new Float32Array(numKeys);
    const rowAt = (row: number): Float32Array => {
      combined.fill(0);
      if (request.combine !== "max") {
        rows.add(heads, row, 0, combined);
        return heads.length > 1 ? combined.map((value) => value / heads.length) : combined;
      }
      for (const head of heads) {
        rows.add([head], row, 0, headRow.fill(0));
        headRow.forEach((value, key) => {
          combined[key] = larger(combined[key] as number, value);
        });
      }
      return combined;
    };
    return strongestOf(rowAt, request, numKeys, meant);
  });
  return { header: { matrices }, data: null };
}
