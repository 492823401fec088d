#lang racket/base
(define n (string->number (vector-ref (current-command-line-arguments) 0)))
(define h (make-hash))
(for ([i n])
  (hash-set! h (modulo (* i 7919) 1000003) (list i (number->string i))))
(define sum
  (for/fold ([a 7]) ([(k v) h])
    (modulo (+ a (* k (string-length (cadr v)) (car v))) 1000000007)))
(define keys (sort (hash-keys h) <))
(printf "~a ~a ~a\n" sum (length keys) (list-ref keys (quotient (length keys) 2)))
