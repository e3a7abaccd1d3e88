// A style sheet is imported as its text; the view puts it into the page.
declare module "*.css" {
  const text: string;
  export default text;
}

// What a worker runs is imported as one script's text; the worker is started from a blob of it.
declare module "*?script" {
  const text: string;
  export default text;
}
