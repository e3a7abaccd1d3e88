/**
 * Neuron view: one query vector, its key vectors, and their products in each dimension. The sum of
 * a key's products is the key's logit, after a soft cap and a bias if the layer has them. The
 * softmax of the logits gives the weights.
 */

import { useMemo } from "preact/hooks";
import { recordTransport } from "../../client/page";
import { NEURON_VIEW_TRAITS } from "../../client/traits";
import { namedColors } from "../../draw/figure";
import { sceneOf } from "../../draw/marks";
import { ColorLegend } from "../../ui/colors/legend";
import { drawnYet, useExports, viewFigure } from "../../ui/exports/exports";
import { defineView } from "../../ui/frame/define-view";
import { Footer, ViewFrame } from "../../ui/frame/frame";
import { headName, stackName } from "../../ui/text/captions";
import type { ViewContext } from "../../ui/view/define-view";
import { additionOf, sentenceOf, subtitleOf } from "./captions";
import { NeuronControls } from "./controls";
import { neuronCsv, scalesOf } from "./figure";
import { backMarks } from "./marks";
import css from "./neuron.css";
import { NeuronPlot, neuronShortcuts } from "./plot";
import type { NeuronState } from "./state";
import { createNeuronStore, type NeuronStore } from "./store";

function NeuronView({ context }: { context: ViewContext<NeuronState> }) {
  const { record } = context;
  const store = useMemo(() => createNeuronStore(context), []);
  const entries = useExports(context, {
    name: "neuron-view",
    figure: () => {
      const drawn = drawnYet(store.drawn.peek());
      const { table, dimensions, layout } = drawn;
      return viewFigure(context, {
        captions: {
          subtitle: subtitleOf(table, dimensions),
          sentence: sentenceOf(table),
          coverage: additionOf(table, dimensions),
        },
        // The figure has no outlines of the cells under the pointer.
        picture: sceneOf(layout, backMarks(drawn), []),
        legend: (width) =>
          namedColors([{ name: headName(table.selection) }], width, drawn.palette.ink),
        scales: scalesOf(drawn),
      });
    },
    csv: () => neuronCsv(drawnYet(store.table.peek())),
    csvLabel: "Numbers, CSV",
  });
  const drawn = store.drawn.value;
  const selection = record.selection.value;
  return (
    <ViewFrame
      context={context}
      name="Neuron view"
      subtitle={drawn ? subtitleOf(drawn.table, drawn.dimensions) : ""}
      summary={store.summary}
      exports={entries}
      keys={neuronShortcuts({ context, store })}
      choose="head"
      options={<NeuronControls context={context} store={store} />}
      footer={<NeuronFooter store={store} />}
    >
      {selection && !selection.stack.vectors ? (
        <p class="av-only-weights">
          The {stackName(selection.stack.name)} has only weights, because the record was made
          without queries and keys or its tokens are merged into words. The head view, the model
          view and the matrix view can show it.
        </p>
      ) : (
        <NeuronPlot context={context} store={store} />
      )}
    </ViewFrame>
  );
}

/** Captions and colour scales below the plot. */
function NeuronFooter({ store }: { store: NeuronStore }) {
  const drawn = store.drawn.value;
  if (!drawn) return null;
  const { table, dimensions } = drawn;
  return (
    <Footer sentence={sentenceOf(table)} coverage={additionOf(table, dimensions)}>
      {scalesOf(drawn).map((scale) => (
        <ColorLegend key={scale.labels[1]} scale={scale} />
      ))}
    </Footer>
  );
}

const view = defineView<NeuronState>({
  name: "neuron",
  traits: NEURON_VIEW_TRAITS,
  css,
  component: NeuronView,
  pageTransport: recordTransport,
});

export const { openPage } = view;
export default view.widget;
