/** The reason why the table has no model of an operation with these arguments. It is a verdict, not a failure. */
export class NotModelled extends Error {}
