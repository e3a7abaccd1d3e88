/**
 * The neuron view: how the weights of one query come from its vector and the keys', dimension by
 * dimension. Everything adds up, row by row.
 */

import { useMemo } from "preact/hooks";
import { stackName } from "../../ui/captions";
import { defineView, type ViewContext } from "../../ui/define-view";
import { useExports } from "../../ui/exports";
import { Footer, ViewFrame } from "../../ui/frame/view-frame";
import { ColorLegend } from "../../ui/legend";
import { RECORD_HASH } from "../../ui/record";
import { additionOf, type Said, sentenceOf, subtitleOf } from "./captions";
import { NeuronControls } from "./controls";
import { figure, neuronCsv, scaleEnds, scalesOf } from "./figure";
import css from "./neuron.css";
import { NeuronPlot } from "./plot";
import { NEURON_DEFAULTS, type NeuronState } from "./state";
import { makeNeuronModel, type NeuronModel } from "./store";

const KEYS = [
  ["↑ ↓", "previous, next key"],
  ["← →", "previous, next query"],
  ["click", "on a row: highlight its key, or no longer"],
  ["s", "sort dimensions by share, or not"],
  ["Esc", "the last query, its strongest key"],
  ["[ ]", "previous, next layer"],
  ["0 … 9", "choose a head"],
  ["?", "show or hide these keys"],
] as const;

function shownNow(model: NeuronModel): Said {
  const said = model.said.peek();
  if (!said) throw new Error("Nothing is drawn yet, so there is no picture to take.");
  return said;
}

export function NeuronView({ context }: { context: ViewContext<NeuronState> }) {
  const { record } = context;
  const model = useMemo(() => makeNeuronModel(context), []);
  const { entries, busy } = useExports(context, {
    name: "neuron-view",
    figure: () => {
      const said = shownNow(model);
      const picture = model.picture.peek();
      if (!picture) throw new Error("Nothing is drawn yet, so there is no picture to take.");
      const words = {
        title: record.description.peek()?.model || "attention",
        subtitle: subtitleOf(said),
        sentence: sentenceOf(said),
        coverage: additionOf(said),
      };
      return { scene: figure(picture, words), title: `${words.title}, ${words.sentence}` };
    },
    csv: () => neuronCsv(shownNow(model)),
    csvLabel: "Numbers, CSV",
  });
  const said = model.said.value;
  const place = record.place.value;
  return (
    <ViewFrame
      context={context}
      name="Neuron view"
      subtitle={said ? subtitleOf(said) : ""}
      summary={model.summary}
      exports={entries}
      keys={KEYS}
      choose="head"
      options={<NeuronControls context={context} model={model} />}
      footer={<NeuronFooter model={model} busy={busy.value} />}
    >
      {place && !place.stack.vectors ? (
        <p class="av-only-weights">
          Of the {stackName(place.stack.name)} only weights are known, and no queries and keys: the
          record was made from weights, or its tokens are merged into words. The head view, the
          model view and the matrix view can show it.
        </p>
      ) : (
        <NeuronPlot context={context} model={model} />
      )}
    </ViewFrame>
  );
}

/** What is said of the picture, and its scales. */
function NeuronFooter({ model, busy }: { model: NeuronModel; busy: string | null }) {
  const said = model.said.value;
  const picture = model.picture.value;
  if (!said || !picture) return null;
  const { palette } = picture;
  return (
    <Footer sentence={sentenceOf(said)} coverage={busy ?? additionOf(said)}>
      {scalesOf(picture).map(({ name, scale }) => {
        const [low, high] = scaleEnds(scale);
        return (
          <ColorLegend
            key={name}
            name="av-scale"
            stops={[palette.negative, "transparent", palette.positive]}
            labels={[low, name, high]}
          />
        );
      })}
    </Footer>
  );
}

const view = defineView<NeuronState>({
  name: "neuron",
  defaults: NEURON_DEFAULTS,
  hash: RECORD_HASH,
  css,
  component: NeuronView,
});

export const openPage = view.openPage;
export default view.widget;
