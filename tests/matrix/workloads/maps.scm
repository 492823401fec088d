(define n (string->number (cadr (command-line))))
(define h (make-hash-table))
(do ((i 0 (+ i 1))) ((= i n))
  (hashv-set! h (modulo (* i 7919) 1000003) (list i (number->string i))))
(define sum
  (hash-fold (lambda (k v a) (modulo (+ a (* k (string-length (cadr v)) (car v))) 1000000007)) 7 h))
(define keys (sort (hash-map->list (lambda (k v) k) h) <))
(format #t "~a ~a ~a\n" sum (length keys) (list-ref keys (quotient (length keys) 2)))
