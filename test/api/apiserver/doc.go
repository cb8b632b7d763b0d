// Package apiserver starts two real API servers with Moor's CRDs, for tests and
// for the benchmark of scale.
package apiserver
