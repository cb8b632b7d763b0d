// Package placement ranks nodes: for a pod that is to be scheduled near its
// volumes (Pod), and for the replicas of a volume (Choose). It owns these two
// rules and nothing else: plain structs in, plain structs out; no client, no
// I/O, no clock, no randomness. The same question always has the same answer,
// in whatever order its parts are given.
package placement
