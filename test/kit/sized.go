package kit

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// Sized is a grpc.UnaryClientInterceptor that has every answer know its encoded
// size, as every request does once it was sent: csi-sanity compares the two with
// reflect.DeepEqual, which sees that.
//
//nolint:revive // the shape of a grpc.UnaryClientInterceptor
func Sized(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, req, reply, cc, opts...)
	if m, ok := reply.(proto.Message); ok && err == nil {
		_, err = proto.Marshal(m)
	}
	return err
}
