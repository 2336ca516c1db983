package org.pocketmq.junit5;

import java.util.List;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;
import org.junit.platform.commons.support.AnnotationSupport;

/**
 * Starts a server before the tests of a class, and gives it to constructors and methods with a parameter of type
 * {@link PocketMQ}. Options are those of {@link PocketMQTest}; without this annotation they have their defaults.
 */
public final class PocketMQExtension implements BeforeAllCallback, ParameterResolver {
    private static final ExtensionContext.Namespace NAMESPACE = ExtensionContext.Namespace.create(PocketMQExtension.class);

    @Override
    public void beforeAll(ExtensionContext context) {
        server(context);
    }

    @Override
    public boolean supportsParameter(ParameterContext parameter, ExtensionContext context) {
        return parameter.getParameter().getType() == PocketMQ.class;
    }

    @Override
    public Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
        return server(context);
    }

    /** Returns the server of a class. A store also looks in those of the contexts around it: so nested classes share one. */
    private static PocketMQ server(ExtensionContext context) {
        PocketMQTest options = options(context);
        boolean isForRun = options != null && options.scope() == PocketMQTest.Scope.RUN;
        List<String> arguments = PocketMQ.arguments(options == null || options.testClock(),
            options == null ? new String[0] : options.settings());
        ExtensionContext owner = isForRun ? context.getRoot() : context;
        Object key = isForRun ? arguments : PocketMQ.class;
        return owner.getStore(NAMESPACE).getOrComputeIfAbsent(key, any -> new Running(PocketMQ.start(arguments)), Running.class).server;
    }

    private static PocketMQTest options(ExtensionContext context) {
        for (Class<?> type = context.getRequiredTestClass(); type != null; type = type.getEnclosingClass()) {
            PocketMQTest found = AnnotationSupport.findAnnotation(type, PocketMQTest.class).orElse(null);
            if (found != null) {
                return found;
            }
        }
        return null;
    }

    /** A server that JUnit closes with the context whose store has it. */
    private static final class Running implements ExtensionContext.Store.CloseableResource {
        private final PocketMQ server;

        private Running(PocketMQ server) {
            this.server = server;
        }

        @Override
        public void close() {
            server.close();
        }
    }
}
