package vendorplugin

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	pluginv1 "github.com/moor-storage/moor/api/plugin/v1"
	"github.com/moor-storage/moor/internal/filestore"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// requests are what devices were made by, in the wire format, by volume.
func (s *Server) requests() filestore.Store[[]byte] {
	return filestore.Store[[]byte]{Dir: s.o.Records}
}

// record keeps what the device of a volume was made by. Where that fails the device is
// there, and to make it again is harmless: so it is uncertain.
func (s *Server) record(req *pluginv1.CreateDeviceRequest) error {
	if s.o.Records == "" {
		return nil
	}
	raw, err := proto.Marshal(req)
	if err == nil {
		err = s.requests().Put(req.GetVolumeId(), raw)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", provisioner.ErrUnavailable, err)
	}
	return nil
}

// recall is what the device of a volume was made by; nil if that is not known, as of one
// that an earlier version made.
func (s *Server) recall(volume string) (*pluginv1.CreateDeviceRequest, error) {
	if s.o.Records == "" {
		return nil, nil //nolint:nilnil // a nil message answers its fields
	}
	raw, found, err := s.requests().Get(volume)
	if err != nil {
		return nil, err
	}
	req := &pluginv1.CreateDeviceRequest{}
	if !found || proto.Unmarshal(raw, req) != nil || req.GetVolumeId() != volume {
		return nil, nil //nolint:nilnil // as above
	}
	return req, nil
}

func (s *Server) forget(volume string) error {
	if s.o.Records == "" {
		return nil
	}
	if err := s.requests().Delete(volume); err != nil {
		return fmt.Errorf("%w: %w", provisioner.ErrUnavailable, err)
	}
	return nil
}
