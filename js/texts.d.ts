// A style sheet is imported as a string, which the view inserts into the page.
declare module "*.css" {
  const text: string;
  export default text;
}
