//go:build !race

package hostsync_test

// stride is how many writes lie between two that are lost.
const stride = 1
