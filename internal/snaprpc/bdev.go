package snaprpc

import (
	"context"
	"math"
	"time"
)

// BdevGetBdevs returns the bdev called name, or every bdev if name is empty.
// An unknown name is refused with ENODEV.
func (c *Client) BdevGetBdevs(ctx context.Context, name string) ([]Bdev, error) {
	var p any
	if name != "" {
		p = params{"name": name}
	}
	var out []Bdev
	err := c.Call(ctx, "bdev_get_bdevs", p, &out)
	return out, err
}

// BdevIOStat is one bdev of bdev_get_iostat: what ended since the bdev was made, and
// what is in flight.
type BdevIOStat struct {
	Name     string `json:"name"`
	ReadOps  uint64 `json:"num_read_ops"`
	WriteOps uint64 `json:"num_write_ops"`
	UnmapOps uint64 `json:"num_unmap_ops"`
	CopyOps  uint64 `json:"num_copy_ops"`
	// Errors counts what failed, which is in no count above, by the kind of failure.
	Errors map[string]uint64 `json:"io_error"`
	// QDPeriod is how often the queue depth is sampled, in microseconds; 0: never.
	QDPeriod uint64 `json:"queue_depth_polling_period"`
	// SampledDepth is the queue depth as it is on the wire: nil of a bdev that is not
	// sampled, and the largest number there is before the first sample. See QueueDepth.
	SampledDepth *uint64 `json:"queue_depth"`
}

// Completed is how many operations ended, those that failed too. It wraps around.
func (s BdevIOStat) Completed() uint64 {
	n := s.ReadOps + s.WriteOps + s.UnmapOps + s.CopyOps
	for _, failed := range s.Errors {
		n += failed
	}
	return n
}

// QueueDepth is how many operations were in flight at the last sample, and whether
// there is one.
func (s BdevIOStat) QueueDepth() (int64, bool) {
	if s.SampledDepth == nil || *s.SampledDepth > math.MaxInt64 {
		return 0, false
	}
	return int64(*s.SampledDepth), true
}

// BdevGetIostat returns the counts of the bdev called name, or of every bdev if name is
// empty. An unknown name is refused with ENODEV.
func (c *Client) BdevGetIostat(ctx context.Context, name string) ([]BdevIOStat, error) {
	var p any
	if name != "" {
		p = params{"name": name}
	}
	var out struct {
		Bdevs []BdevIOStat `json:"bdevs"`
	}
	err := c.Call(ctx, "bdev_get_iostat", p, &out)
	return out.Bdevs, err
}

// BdevSetQDSamplingPeriod has the queue depth of a bdev sampled each period, in whole
// microseconds, from which on BdevGetIostat tells it; 0 ends that. It may be repeated. An
// unknown name is refused with ENODEV.
func (c *Client) BdevSetQDSamplingPeriod(ctx context.Context, name string, period time.Duration) error {
	return c.Call(ctx, "bdev_set_qd_sampling_period", params{"name": name, "period": period.Microseconds()}, nil)
}

// BdevAioCreate makes a bdev over a file or block device and returns its name.
func (c *Client) BdevAioCreate(ctx context.Context, spec AIOSpec) (string, error) {
	var out string
	err := c.Call(ctx, "bdev_aio_create", spec, &out)
	return out, err
}

// BdevAioDelete removes a bdev made by BdevAioCreate; the file stays.
func (c *Client) BdevAioDelete(ctx context.Context, name string) error {
	return c.Call(ctx, "bdev_aio_delete", params{"name": name}, nil)
}

// BdevAioRescan gives a bdev made by BdevAioCreate the size that the file behind
// it has now.
func (c *Client) BdevAioRescan(ctx context.Context, name string) error {
	return c.Call(ctx, "bdev_aio_rescan", params{"name": name}, nil)
}

// RPCGetMethods returns the names of the methods that the service knows.
func (c *Client) RPCGetMethods(ctx context.Context) ([]string, error) {
	var out []string
	err := c.Call(ctx, "rpc_get_methods", nil, &out)
	return out, err
}
