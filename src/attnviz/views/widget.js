// Module of a view's widget. Browsers never unload a module, so this module is small, and it loads
// the code of the views once for all widgets of the page with the same code. The code is deflated,
// in base64. The trait `_code` refers to the model of a widget that contains the code or, in marimo,
// contains the code itself.
const modules = (globalThis[Symbol.for("attnviz modules")] ??= new Map());
async function codeOf(model) {
  const reference = model.get("_code");
  if (!reference.startsWith("IPY_MODEL_")) return reference;
  const shared = await model.widget_manager.get_model(reference.slice("IPY_MODEL_".length));
  return shared.get("code");
}
async function imported(packed) {
  const bytes = Uint8Array.from(atob(packed), (each) => each.charCodeAt(0));
  const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const code = await new Response(unpacked).text();
  const address = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
  return import(address).finally(() => URL.revokeObjectURL(address));
}
async function load(model) {
  let module = modules.get("HASH");
  if (!module) {
    module = codeOf(model).then(imported);
    modules.set("HASH", module);
    module.catch(() => modules.delete("HASH"));
  }
  return (await module).VIEW();
}
export default () => {
  let widget;
  return {
    async initialize(props) {
      widget = await load(props.model);
      return widget.initialize(props);
    },
    async render(props) {
      widget ??= await load(props.model);
      return props.signal?.aborted ? undefined : widget.render(props);
    },
  };
};
