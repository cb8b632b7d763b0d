package snapemulator

import (
	"context"
	"errors"
	"os"
	"syscall"

	"github.com/moor-storage/moor/reference/snapemulator/datapath"
	"github.com/moor-storage/moor/reference/snapemulator/model"
	"github.com/moor-storage/moor/reference/snapemulator/wire"
	"github.com/moor-storage/moor/reference/writelog"
)

func bdevMethods() map[string]handler {
	return map[string]handler{
		"bdev_get_bdevs":              method(getBdevs),
		"bdev_get_iostat":             method(getIostat),
		"bdev_set_qd_sampling_period": method(setQDSamplingPeriod),
		"bdev_aio_create":             method(aioCreate),
		"bdev_aio_delete":             method(deleteBdev(model.AIO)),
		"bdev_aio_rescan":             method(aioRescan),
		"bdev_malloc_create":          method(mallocCreate),
		"bdev_malloc_delete":          method(deleteBdev(model.Malloc)),
		"bdev_null_create":            method(nullCreate),
		"bdev_null_delete":            method(deleteBdev(model.Null)),
		"bdev_null_resize":            method(nullResize),
	}
}

// chosenBdevs returns the bdev called name, or all; ENODEV without it.
func (e *Emulator) chosenBdevs(name string) ([]*model.Bdev, error) {
	if name == "" {
		return e.model.Bdevs, nil
	}
	b := e.model.Bdev(name)
	if b == nil {
		return nil, model.Refuse(syscall.ENODEV, "bdev %s", name)
	}
	return []*model.Bdev{b}, nil
}

func getBdevs(_ context.Context, e *Emulator, p struct {
	Name    string `json:"name"`
	Timeout int    `json:"timeout"`
},
) (any, error) {
	bdevs, err := e.chosenBdevs(p.Name)
	if err != nil {
		return nil, err
	}
	out := []wire.BdevShape{}
	for _, b := range bdevs {
		out = append(out, wire.BdevOf(b))
	}
	return out, nil
}

// iostat is one bdev in the answer to bdev_get_iostat. The queue depth is told only of
// a bdev that has a sampling period, and is that of the moment.
type iostat struct {
	Name          string           `json:"name"`
	BytesRead     int64            `json:"bytes_read"`
	ReadOps       int64            `json:"num_read_ops"`
	BytesWritten  int64            `json:"bytes_written"`
	WriteOps      int64            `json:"num_write_ops"`
	BytesUnmapped int64            `json:"bytes_unmapped"`
	UnmapOps      int64            `json:"num_unmap_ops"`
	IOError       map[string]int64 `json:"io_error"`
	QDPeriod      uint64           `json:"queue_depth_polling_period,omitempty"`
	QueueDepth    *int64           `json:"queue_depth,omitempty"`
}

func (e *Emulator) iostatOf(b *model.Bdev) iostat {
	s := e.stores[b.Name]
	depth, io := s.InFlight(), s.Counts() // in this order: what ends in between is told twice, not left out
	out := iostat{
		Name: b.Name, BytesRead: io.BytesRead, ReadOps: io.Reads, BytesWritten: io.BytesWritten, WriteOps: io.Writes,
		BytesUnmapped: io.BytesUnmapped, UnmapOps: io.Unmaps, IOError: map[string]int64{}, QDPeriod: b.QDPeriod,
	}
	if io.Errors > 0 {
		out.IOError["failed"] = io.Errors
	}
	if b.QDPeriod > 0 {
		out.QueueDepth = &depth
	}
	return out
}

func getIostat(_ context.Context, e *Emulator, p struct {
	Name string `json:"name"`
},
) (any, error) {
	bdevs, err := e.chosenBdevs(p.Name)
	if err != nil {
		return nil, err
	}
	out := []iostat{}
	for _, b := range bdevs {
		out = append(out, e.iostatOf(b))
	}
	return map[string]any{"tick_rate": 1_000_000_000, "ticks": e.ticks(), "bdevs": out}, nil
}

// setQDSamplingPeriod has bdev_get_iostat tell the queue depth of a bdev, or not any more.
func setQDSamplingPeriod(_ context.Context, e *Emulator, p struct {
	Name   string `json:"name" snap:"must"`
	Period uint64 `json:"period" snap:"must"`
},
) (any, error) {
	b := e.model.Bdev(p.Name)
	if b == nil {
		return nil, model.Refuse(syscall.ENODEV, "bdev %s", p.Name)
	}
	b.QDPeriod = p.Period
	return true, nil
}

func aioCreate(_ context.Context, e *Emulator, p struct {
	Name      string `json:"name" snap:"must"`
	Filename  string `json:"filename" snap:"must"`
	BlockSize int64  `json:"block_size"`
	ReadOnly  bool   `json:"readonly"`
	Fallocate bool   `json:"fallocate"`
	UUID      string `json:"uuid"`
	NoWait    bool   `json:"nowait"`
},
) (any, error) {
	if e.model.Bdev(p.Name) != nil {
		return nil, model.Refuse(syscall.EEXIST, "bdev %s", p.Name)
	}
	s, size, err := e.openFile(p.Filename, p.ReadOnly)
	if err != nil {
		return nil, err
	}
	if p.BlockSize == 0 {
		p.BlockSize = 512
	}
	if p.BlockSize < 0 || size%p.BlockSize != 0 {
		s.Close()
		return nil, model.Refuse(syscall.EINVAL, "%s has %d bytes, no multiple of the block size %d", p.Filename, size, p.BlockSize)
	}
	return e.addBdev(model.Bdev{
		Name: p.Name, Product: model.AIO, UUID: p.UUID, BlockSize: p.BlockSize,
		NumBlocks: size / p.BlockSize, ReadOnly: p.ReadOnly, Filename: p.Filename,
	}, s)
}

// openFile opens the file behind a bdev, whose accepted writes are recorded, and
// returns its size in bytes.
func (e *Emulator) openFile(path string, readOnly bool) (*datapath.Store, int64, error) {
	file, size, err := datapath.OpenBacking(path, readOnly)
	if err != nil {
		return nil, 0, refuseOpen(err)
	}
	if e.opts.MediumLogDir == "" {
		return datapath.NewStore(file), size, nil
	}
	log, err := writelog.Open(e.opts.MediumLogDir, path)
	if err != nil {
		file.Close()
		return nil, 0, err
	}
	return datapath.NewRecordedStore(file, log, e.opts.Name), size, nil
}

// refuseOpen tells the caller why the file behind a bdev cannot be had.
func refuseOpen(err error) error {
	errno := syscall.EIO
	errors.As(err, &errno)
	if errors.Is(err, os.ErrNotExist) {
		errno = syscall.ENOENT
	}
	return model.Refuse(errno, "%v", err)
}

func (e *Emulator) addBdev(b model.Bdev, s *datapath.Store) (any, error) {
	if err := e.model.CreateBdev(b); err != nil {
		s.Close()
		return nil, err
	}
	e.stores[b.Name] = s
	return b.Name, nil
}

// sized is what malloc and null bdevs are asked for.
type sized struct {
	Name      string `json:"name"`
	NumBlocks int64  `json:"num_blocks" snap:"must"`
	BlockSize int64  `json:"block_size" snap:"must"`
	UUID      string `json:"uuid"`

	PhysicalBlockSize int64 `json:"physical_block_size"`
	OptimalIOBoundary int64 `json:"optimal_io_boundary"`
	MDSize            int64 `json:"md_size"`
}

func (p sized) bdev(product string) model.Bdev {
	return model.Bdev{Name: p.Name, Product: product, UUID: p.UUID, BlockSize: p.BlockSize, NumBlocks: p.NumBlocks}
}

// maxMalloc bounds a bdev in memory, in bytes.
const maxMalloc = 1 << 30

func mallocCreate(_ context.Context, e *Emulator, p sized) (any, error) {
	if p.Name == "" {
		p.Name = e.freeName("Malloc")
	}
	b := p.bdev(model.Malloc)
	if b.BlockSize > 0 && b.NumBlocks > maxMalloc/b.BlockSize {
		return nil, model.Refuse(syscall.ENOMEM, "%d blocks are more than the %d bytes allowed", b.NumBlocks, maxMalloc)
	}
	if err := e.model.CreateBdev(b); err != nil {
		return nil, err
	}
	file, err := datapath.MemoryBacking(p.Name, b.Size())
	if err != nil {
		return nil, errors.Join(err, e.model.DeleteBdev(p.Name, model.Malloc))
	}
	e.stores[p.Name] = datapath.NewStore(file)
	return p.Name, nil
}

func nullCreate(_ context.Context, e *Emulator, p sized) (any, error) {
	if p.Name == "" {
		p.Name = e.freeName("Null")
	}
	return e.addBdev(p.bdev(model.Null), datapath.NewStore(datapath.NullBacking{}))
}

func deleteBdev(product string) func(context.Context, *Emulator, struct {
	Name string `json:"name" snap:"must"`
}) (any, error) {
	return func(_ context.Context, e *Emulator, p struct {
		Name string `json:"name" snap:"must"`
	},
	) (any, error) {
		if s := e.stores[p.Name]; s != nil {
			if err := s.Settled(); err != nil {
				return nil, err
			}
		}
		if err := e.model.DeleteBdev(p.Name, product); err != nil {
			return nil, err
		}
		e.stores[p.Name].Close()
		delete(e.stores, p.Name)
		return true, nil
	}
}
