// Package index defines the field indexes of the controllers' caches, each once:
// its field, the kind, how the value is found, and which process registers it.
// Several reconcilers look by the same index, and a cache has it once.
package index
