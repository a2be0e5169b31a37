import torch


def js_divergence(input, target):
    student, teacher = input.log_softmax(-1), target.detach().log_softmax(-1)
    both = torch.logaddexp(student, teacher) - 0.6931471805599453
    of_student = (student.exp() * (student - both)).sum(-1)
    of_teacher = (teacher.exp() * (teacher - both)).sum(-1)
    return (of_student + of_teacher).mean() / 2
