// A style sheet is imported as its text; the view puts it into the page.
declare module "*.css" {
  const text: string;
  export default text;
}
