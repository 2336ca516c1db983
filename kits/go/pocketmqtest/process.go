package pocketmqtest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// program is the variable with the program to run, if it is not on the PATH.
	program = "POCKETMQ"
	// parent asks the server to end with this process: on Linux the kernel kills it when the thread that started it ends.
	parent    = "POCKETMQ_PARENT"
	readyMax  = 2 * time.Minute
	stopMax   = 30 * time.Second
	linesKept = 200
	// endOfReadyLines begins the line that the server prints last.
	endOfReadyLines = "Try: "
)

var readyLines = map[string]*regexp.Regexp{
	"namesrv": regexp.MustCompile(`^The Name Server boot success\. address=(\S+)`),
	"broker":  regexp.MustCompile(`^The broker\[.*\] boot success\. address=(\S+)`),
	"grpc":    regexp.MustCompile(`^gRPC: (\S+)`),
	"metrics": regexp.MustCompile(`^Metrics: ([^\s,]+)`),
}

// process is the program pocketmq as a child process.
type process struct {
	found map[string]string // by what a ready line says; complete once ready is closed

	command *exec.Cmd
	mutex   sync.Mutex
	lines   []string
	ready   chan struct{}
	ended   chan struct{}
	failure error // why it was not started; set once ended is closed
}

// startProcess starts the program and waits until it is ready.
func startProcess(arguments []string) (*process, error) {
	words := append(command(), arguments...)
	p := &process{
		found:   map[string]string{},
		command: exec.Command(words[0], words[1:]...),
		ready:   make(chan struct{}),
		ended:   make(chan struct{}),
	}
	p.command.Env = append(os.Environ(), parent+"="+strconv.Itoa(os.Getpid()))
	go p.run()
	select {
	case <-p.ready:
		return p, nil
	case <-p.ended:
	case <-time.After(readyMax):
		_ = p.command.Process.Kill()
		<-p.ended
	}
	shown := strings.Join(words, " ")
	if p.failure != nil {
		return nil, fmt.Errorf("cannot run %s: install PocketMQ, or set %s to its program `pocketmq`: %w", shown, program, p.failure)
	}
	return nil, fmt.Errorf("%s did not become ready (%v); it printed:\n%s", shown, p.command.ProcessState, p.output())
}

func command() []string {
	if given := os.Getenv(program); given != "" {
		return []string{given}
	}
	if path, err := exec.LookPath("pocketmq"); err == nil {
		return []string{path}
	}
	return []string{"python3", "-m", "pocketmq"}
}

// run starts the program and reads its output until it ends. Its thread is locked and so lives as long as the server, which
// the kernel kills when that thread ends.
func (p *process) run() {
	runtime.LockOSThread()
	defer close(p.ended)
	reader, writer, err := os.Pipe()
	if err != nil {
		p.failure = err
		return
	}
	defer reader.Close()
	p.command.Stdout, p.command.Stderr = writer, writer
	err = p.command.Start()
	_ = writer.Close()
	if err != nil {
		p.failure = err
		return
	}
	p.readLines(reader)
	_ = p.command.Wait()
}

func (p *process) readLines(from io.Reader) {
	isReady := false
	for reader := bufio.NewReader(from); ; {
		line, err := reader.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimRight(line, "\r\n")
		p.keep(line)
		if isReady {
			continue
		}
		for what, pattern := range readyLines {
			if groups := pattern.FindStringSubmatch(line); groups != nil {
				p.found[what] = groups[1]
			}
		}
		if strings.HasPrefix(line, endOfReadyLines) {
			isReady = true
			close(p.ready)
		}
	}
}

func (p *process) keep(line string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.lines = append(p.lines, line)
	if len(p.lines) > linesKept {
		p.lines = p.lines[1:]
	}
}

func (p *process) output() string {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return strings.Join(p.lines, "\n")
}

// stop asks the server to stop, and kills it if it does not in time.
func (p *process) stop() error {
	if err := p.command.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(stopMax):
		_ = p.command.Process.Kill()
		<-p.ended
		return fmt.Errorf("the server did not stop within %v and was killed", stopMax)
	}
}
