package csi

import (
	"encoding/base64"
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/moor-storage/moor/pkg/csiserver"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// list names a list: a token of one is no token of another.
type list string

// The lists.
const (
	listVolumes   list = "volumes"
	listSnapshots list = "snapshots"
	listHealth    list = "health"
)

// token is what a caller gets to go on after the ID: the ID itself, so that a
// restart of the driver and whatever comes and goes leave it valid, with a
// checksum by which made-up ones are told apart.
func (l list) token(after string) string {
	if after == "" {
		return ""
	}
	text := string(l) + "\x00" + after
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%08x%s", crc32.ChecksumIEEE([]byte(text)), text))
}

// after is token read backwards; ErrToken for what is no token of the list.
func (l list) after(token string) (string, error) {
	if token == "" {
		return "", nil
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(token)
	_, after, ok := strings.Cut(string(raw), "\x00")
	if err != nil || !ok || l.token(after) != token {
		return "", fmt.Errorf("starting_token %q is none of this list of %s: %w", token, l, provisioner.ErrToken)
	}
	return after, nil
}

// page reads what a request for a part of a list asks for.
func (l list) page(token string, most int32) (provisioner.Page, error) {
	if most < 0 {
		return provisioner.Page{}, csiserver.Invalid("max_entries is %d, it may not be negative", most)
	}
	after, err := l.after(token)
	return provisioner.Page{After: after, Max: int(most)}, err
}
