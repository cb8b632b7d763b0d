// Package program runs Moor's programs as they are shipped, and tells what each of
// them costs: processor time, memory, requests to the API servers, and when it has
// nothing left to do.
package program
