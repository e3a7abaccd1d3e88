// A widget's module. A browser keeps every module that a page ever loaded, so this one is small, and
// loads the view's code once for all widgets of the page that have the same. The code comes
// deflated, in base64: every widget brings it along, also into notebooks that are saved.
const modules = (globalThis[Symbol.for("attnviz modules")] ??= new Map());
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
    module = imported(model.get("_code"));
    modules.set("HASH", module);
    module.catch(() => modules.delete("HASH"));
  }
  return (await module).default();
}
export default () => {
  let widget;
  return {
    async initialize(props) {
      widget = await load(props.model);
      const end = widget.initialize(props);
      return () => {
        end();
        // JupyterLab keeps the models of widgets that were closed. Twice, because a model has its
        // last values as well.
        props.model.set("_code", "");
        props.model.set("_code", null);
      };
    },
    async render(props) {
      widget ??= await load(props.model);
      return props.signal?.aborted ? undefined : widget.render(props);
    },
  };
};
