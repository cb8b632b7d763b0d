// Package apiserver starts real API servers with Moor's CRDs for tests. It is
// built with the tag api alone.
package apiserver
