// A widget's module. A browser keeps every module that a page ever loaded, so this one is small, and
// loads the view's code once for all widgets of the page that have the same.
const modules = (globalThis[Symbol.for("attnviz modules")] ??= new Map());
async function load(model) {
  let module = modules.get("HASH");
  if (!module) {
    const source = new Blob([model.get("_code")], { type: "text/javascript" });
    const address = URL.createObjectURL(source);
    module = import(address).finally(() => URL.revokeObjectURL(address));
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
