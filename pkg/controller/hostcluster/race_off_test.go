//go:build !race

package hostcluster_test

// stride is how many writes lie between two that are lost.
const stride = 1
