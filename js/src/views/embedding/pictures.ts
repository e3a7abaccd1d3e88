/** What is drawn of a corpus now, for whoever makes a figure of it. */

import type { Scene } from "../../draw/marks";
import type { FigureDetail } from "./trust";

/** Without what the pointer and the keyboard are on. */
export interface Pictures {
  /** All heads, with their labels and figures. @throws Error before anything is drawn. */
  overview: () => Scene;
  /** How much of the figures stands below each of its plots. */
  figures: () => FigureDetail;
  /** The enlarged head. @throws Error before anything is drawn. */
  plot: () => Scene;
}
