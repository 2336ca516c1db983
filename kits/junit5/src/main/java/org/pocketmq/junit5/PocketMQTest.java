package org.pocketmq.junit5;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Inherited;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import org.junit.jupiter.api.extension.ExtendWith;

/** Gives the tests of a class a server, as a parameter of type {@link PocketMQ}. */
@Target(ElementType.TYPE)
@Retention(RetentionPolicy.RUNTIME)
@Inherited
@Documented
@ExtendWith(PocketMQExtension.class)
public @interface PocketMQTest {
    /** How long a server runs. */
    enum Scope {
        /** Each class has a server, which its nested classes share. */
        CLASS,
        /** All classes with the same options share a server until the end of the run. */
        RUN
    }

    Scope scope() default Scope.CLASS;

    /** Whether message time stands still until {@link PocketMQ#advanceClock}; false: the machine's clock. */
    boolean testClock() default true;

    /** Settings of broker and name server, such as {@code "autoCreateTopicEnable=false"}. */
    String[] settings() default {};
}
