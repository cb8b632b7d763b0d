package service

import "strings"

// Bare writes a PCI address as SNAP does: lower case, without the domain
// 0000 that Linux puts before it.
func Bare(address string) string {
	return strings.TrimPrefix(strings.ToLower(address), "0000:")
}
