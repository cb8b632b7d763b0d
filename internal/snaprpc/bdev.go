package snaprpc

import "context"

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
