/** Canvas with marks: a small picture without captions. */

import type { ComponentProps } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { paintMarks, prepareCanvas } from "../../draw/canvas";
import type { Mark } from "../../draw/marks";

/** Render a canvas with marks. Its size is in CSS pixels. */
export function MarkCanvas(
  props: ComponentProps<"canvas"> & { marks: Mark[]; width: number; height: number },
) {
  const { marks, width, height, ...attributes } = props;
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const context = canvas.current && prepareCanvas(canvas.current, width, height);
    if (context) paintMarks(context, marks);
  });
  return (
    <canvas ref={canvas} style={{ width: `${width}px`, height: `${height}px` }} {...attributes} />
  );
}
