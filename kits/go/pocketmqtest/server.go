// Package pocketmqtest starts a RocketMQ-compatible name server and broker for tests.
//
//	func TestOrderTimesOut(t *testing.T) {
//		srv := pocketmqtest.Start(t)
//		topic, err := srv.CreateTopic("Orders", pocketmqtest.Delay)
//		...                                  any RocketMQ client, with srv.NameServer or srv.GRPC
//		srv.AdvanceClock(30 * time.Minute)
//	}
//
// The server is a child process with its store in memory; it ends with the test, or with this process.
package pocketmqtest

import (
	"strconv"
	"testing"
	"time"
)

// MessageType is the kind of messages that a topic takes: RocketMQ's attribute message.type.
type MessageType string

const (
	Normal      MessageType = "NORMAL"
	FIFO        MessageType = "FIFO"
	Delay       MessageType = "DELAY"
	Transaction MessageType = "TRANSACTION"
	Priority    MessageType = "PRIORITY"
	Mixed       MessageType = "MIXED"
)

const (
	updateAndCreateTopic = 17
	readClock            = 70010
	advanceClock         = 70011
	readAndWrite         = 6
	queuesOfTopic        = 4
)

// Server is a running name server and broker.
type Server struct {
	// NameServer is the address host:port of the name server.
	NameServer string
	// Broker is the address host:port of the broker.
	Broker string
	// GRPC is the address host:port for gRPC clients; empty if the server has no gRPC library.
	GRPC string
	// Metrics is the address of the page of metrics; empty without one.
	Metrics string

	process *process
}

// Option changes how a server is started.
type Option func(*options)

type options struct {
	systemClock bool
	settings    []string
}

// WithSystemClock lets message time be that of the machine. Without it, message time stands still until AdvanceClock.
func WithSystemClock() Option {
	return func(o *options) { o.systemClock = true }
}

// WithSettings sets keys of broker and name server, such as "autoCreateTopicEnable=false".
func WithSettings(settings ...string) Option {
	return func(o *options) { o.settings = append(o.settings, settings...) }
}

// Start starts a server that stops at the end of the test and its subtests. If it cannot start, the test fails.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	srv, err := Run(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Stop() })
	return srv
}

// Run starts a server without a test, as for TestMain. The caller stops it.
func Run(opts ...Option) (*Server, error) {
	var chosen options
	for _, option := range opts {
		option(&chosen)
	}
	arguments := []string{"up", "--memory", "--port", "0"}
	if !chosen.systemClock {
		arguments = append(arguments, "--test-clock")
	}
	for _, setting := range chosen.settings {
		arguments = append(arguments, "--set", setting)
	}
	started, err := startProcess(arguments)
	if err != nil {
		return nil, err
	}
	found := started.found
	return &Server{found["namesrv"], found["broker"], found["grpc"], found["metrics"], started}, nil
}

// Stop stops the server; its messages are lost.
func (s *Server) Stop() error {
	return s.process.stop()
}

// Output returns the last lines that the server printed.
func (s *Server) Output() string {
	return s.process.output()
}

// CreateTopic creates a topic with four queues, or changes its type, and returns its name. Clients find it on return.
func (s *Server) CreateTopic(name string, messageType MessageType) (string, error) {
	_, err := call(s.Broker, updateAndCreateTopic, map[string]string{
		"topic":           name,
		"defaultTopic":    "TBW102",
		"readQueueNums":   strconv.Itoa(queuesOfTopic),
		"writeQueueNums":  strconv.Itoa(queuesOfTopic),
		"perm":            strconv.Itoa(readAndWrite),
		"topicFilterType": "SINGLE_TAG",
		"topicSysFlag":    "0",
		"order":           "false",
		"attributes":      "+message.type=" + string(messageType),
	})
	return name, err
}

// Now returns the current message time.
func (s *Server) Now() (time.Time, error) {
	return timeOf(call(s.Broker, readClock, nil))
}

// AdvanceClock advances message time, and returns the new one: messages that are due by then are in their topics.
func (s *Server) AdvanceClock(duration time.Duration) (time.Time, error) {
	ms := strconv.FormatInt(duration.Milliseconds(), 10)
	return timeOf(call(s.Broker, advanceClock, map[string]string{"ms": ms}))
}

func timeOf(fields map[string]string, err error) (time.Time, error) {
	if err != nil {
		return time.Time{}, err
	}
	ms, err := strconv.ParseInt(fields["now"], 10, 64)
	return time.UnixMilli(ms), err
}
