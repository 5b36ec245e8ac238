// A Pub/Sub server for tests: Google's own fake, on loopback, behind TLS and a bearer token if wished.
package main

import (
	"context"
	"flag"
	"log"
	"net"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const largest = 32 << 20

func main() {
	address := flag.String("address", "127.0.0.1:8085", "where to listen")
	certificate := flag.String("certificate", "", "file of the certificate; without it there is no TLS")
	key := flag.String("key", "", "file of the certificate's key")
	token := flag.String("token", "", "the bearer token to ask for; without it everybody is let in")
	flag.Parse()

	allowed := func(ctx context.Context) error {
		sent := metadata.ValueFromIncomingContext(ctx, "authorization")
		if *token == "" || len(sent) == 1 && sent[0] == "Bearer "+*token {
			return nil
		}
		return status.Error(codes.Unauthenticated, "Request had invalid authentication credentials.")
	}
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(largest),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{PermitWithoutStream: true}),
		grpc.UnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			if err := allowed(ctx); err != nil {
				return nil, err
			}
			return handle(ctx, request)
		}),
		grpc.StreamInterceptor(func(service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			if err := allowed(stream.Context()); err != nil {
				return err
			}
			return handle(service, stream)
		}),
	}
	if *certificate != "" {
		secure, err := credentials.NewServerTLSFromFile(*certificate, *key)
		if err != nil {
			log.Fatal(err)
		}
		options = append(options, grpc.Creds(secure))
	}
	listener, err := net.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	// The fake opens a port of its own, too, without TLS and token; nobody is told about it.
	fake := pstest.NewServerWithAddress("127.0.0.1:0")
	server := grpc.NewServer(options...)
	pb.RegisterPublisherServer(server, &fake.GServer)
	pb.RegisterSubscriberServer(server, &fake.GServer)
	pb.RegisterSchemaServiceServer(server, &fake.GServer)
	log.Fatal(server.Serve(listener))
}
