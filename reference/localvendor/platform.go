package localvendor

import "github.com/moor-storage/moor/pkg/provisioner"

// Platform returns every face that this storage has, but Host, which is its
// nodes'. Change is one of them only if the volumes' data flows through a target
// that can hold them to limits.
func (s *Storage) Platform() provisioner.Platform {
	p := provisioner.Platform{
		Volumes: s, Attachments: s, Copies: s, Snapshots: snapshots{s}, Groups: groups{s},
		Inventory: inventory{s}, Room: room{s}, Expansion: s, Health: health{s},
	}
	if s.limitable() {
		p.Change = s
	}
	return p
}
