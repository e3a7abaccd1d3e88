/** How far a heat map of a long text is, and the way to stop its work or to go on. */

import type { HeatMapStore } from "./store";

/** Nothing where all cells are exact. */
export function EstimateProgress({ store }: { store: HeatMapStore }) {
  const done = store.captionInput.value?.grid.estimate?.progress;
  if (done === undefined) return null;
  const computing = store.computing.value;
  // Of a whole that takes minutes the first tenth is watched most closely.
  const percent = (Math.floor(1000 * done) / 10).toFixed(done > 0 && done < 0.1 ? 1 : 0);
  return (
    <span class="av-progress">
      <progress aria-label="Exact" max={1} value={done} />
      <span>estimate, {percent}%</span>
      <button
        type="button"
        class="av-chip"
        title={computing ? "Leave it at the estimate" : "Go through all queries"}
        onClick={() => store.compute(!computing)}
      >
        {computing ? "Stop" : "Go on"}
      </button>
    </span>
  );
}
